"""How a model cuts text: nothing is lost, whatever the text."""

import pytest
import torch
from helpers import ACT, LOOKUP, make_config, tiny_model, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.utils.rnn import pad_sequence

from caesura.data.sentences import Numbered, places_of
from caesura.data.vocabulary import Spans
from caesura.data.vocabulary_training import train_vocabulary
from caesura.inference import Translator
from caesura.output import Segmentation, segmentations

TEXT = ["ein haus am see", "zwei häuser", "drei schiffe und ein see", "東京都に行く"]
DECODER = {"embedding_dim": 4, "hidden_size": 6, "attention_size": 5}


@pytest.fixture(scope="module")
def models() -> dict[str, Translator]:
    made = {"act": tiny_model(ACT, seed=2)}
    for kind, size in (("word", None), ("bpe", 60), ("wordpiece", 70)):
        config = make_config(LOOKUP, {"hidden_size": 3}, DECODER)
        made[kind] = Translator.build(config, train_vocabulary(kind, TEXT, size), vocabulary(9)).eval()
    return made


@pytest.mark.parametrize("kind", ["act", "word", "bpe", "wordpiece"])
@settings(max_examples=30)
@given(texts=st.lists(st.one_of(st.text(max_size=30), st.text("abc äß東 \t", max_size=30)), max_size=4))
def test_the_pieces_of_any_string_joined_give_it_back(
    models: dict[str, Translator], kind: str, texts: list[str]
) -> None:
    for text, output in zip(texts, models[kind].process(texts, None), strict=True):
        cut = output.segmentation
        assert "".join(cut.pieces) == text
        assert all(cut.pieces)
        assert [len("".join(cut.pieces[:i])) for i in range(1, len(cut.pieces))] == cut.bounds
        spaces = 0 if kind == "act" else sum(character.isspace() for character in text)
        assert sum(cut.covered) == len(text) - spaces


def test_act_gives_pieces_of_more_than_one_length(models: dict[str, Translator]) -> None:
    lengths = {len(piece) for piece in models["act"].segment(["abcdefgh" * 5])[0]}
    assert len(lengths) > 1


def test_cuts_alone_need_no_encoder(models: dict[str, Translator], monkeypatch: pytest.MonkeyPatch) -> None:
    model = models["act"]
    expected = [output.segmentation for output in model.process(TEXT, model.searcher(1))]
    monkeypatch.delattr(type(model.encoder), "forward")  # most of the time of a large model
    assert [output.segmentation for output in model.process(TEXT, None)] == expected


@st.composite
def spaced(draw: st.DrawFn) -> tuple[str, Spans, list[bool]]:
    """A text, the places of its words, and which of them end a segment; the last is </s>."""
    text, spans = "", []
    for word in draw(st.lists(st.text("ab", min_size=1, max_size=4), max_size=8)):
        text += " " * draw(st.integers(0, 2))
        spans.append((len(text), len(text) + len(word)))
        text += word
    ends = draw(st.lists(st.booleans(), min_size=len(spans) + 1, max_size=len(spans) + 1))
    return text + " " * draw(st.integers(0, 2)), spans, ends


@given(rows=st.lists(spaced(), min_size=1, max_size=4), scored=st.booleans())
def test_the_pieces_of_a_text_end_where_its_segments_do(
    rows: list[tuple[str, Spans, list[bool]]], scored: bool
) -> None:
    texts, spans, ends = zip(*rows, strict=True)
    padded = pad_sequence([torch.tensor(row) for row in ends], batch_first=True)
    weights = torch.rand(padded.shape)
    places = [places_of(pairs) for pairs in spans]
    cuts = segmentations(texts, places, padded, weights, -weights if scored else None)
    for segmentation, (text, pairs, halts), weight in zip(cuts, rows, weights.tolist(), strict=True):
        pieces, covered, begin, width = [], [], 0, 0
        for t, (start, end) in enumerate(pairs):  # symbol by symbol
            width += end - start
            if halts[t] or t == len(pairs) - 1:
                stop = len(text) if t == len(pairs) - 1 else end
                pieces.append(text[begin:stop])
                covered.append(width)
                begin, width = stop, 0
        kept = weight[: len(pairs)]
        scores = [-number for number in kept] if scored else None
        assert segmentation == Segmentation(pieces, covered, halts[:-1], kept, scores)


@pytest.mark.parametrize("kind", ["act", "word", "bpe", "wordpiece"])
def test_texts_numbered_before_are_cut_and_translated_as_they_are(
    models: dict[str, Translator], kind: str
) -> None:
    model, texts = models[kind], [TEXT[0], "", "  ", "☃ see", *TEXT[1:]]
    numbered = Numbered(texts, model.src_vocabulary)
    texts.reverse()  # what becomes of the list is of no consequence
    expected = model.process(texts[::-1], model.searcher(1))
    for _ in range(2):
        assert model.process(numbered, model.searcher(1)) == expected


def test_numbers_of_another_vocabulary_are_not_used(models: dict[str, Translator]) -> None:
    for model in models.values():
        expected = model.process(TEXT, model.searcher(1))
        for other in models.values():
            assert model.process(Numbered(TEXT, other.src_vocabulary), model.searcher(1)) == expected
