"""How a model cuts text: nothing is lost, whatever the text."""

import pytest
from helpers import ACT, LOOKUP, make_config, tiny_model, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.data.vocabulary_training import train_vocabulary
from caesura.model import Translator
from caesura.output import segmentation

TEXT = ["ein haus am see", "zwei häuser", "drei schiffe und ein see", "東京都に行く"]
DECODER = {"embedding_dim": 4, "hidden_size": 6, "attention_size": 5}


@pytest.fixture(scope="module")
def models() -> dict[str, Translator]:
    found = {"act": tiny_model(ACT, seed=2)}
    for kind, size in (("word", None), ("bpe", 60), ("wordpiece", 70)):
        config = make_config(LOOKUP, {"hidden_size": 3}, DECODER)
        found[kind] = Translator.build(config, train_vocabulary(kind, TEXT, size), vocabulary(9)).eval()
    return found


@pytest.mark.parametrize("kind", ["act", "word", "bpe", "wordpiece"])
@settings(max_examples=60)
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


@given(
    words=st.lists(st.text("ab", min_size=1, max_size=4), max_size=8),
    gaps=st.lists(st.integers(0, 2), min_size=9, max_size=9),
    ends=st.lists(st.booleans(), min_size=9, max_size=12),
)
def test_the_pieces_of_a_text_end_where_its_segments_do(
    words: list[str], gaps: list[int], ends: list[bool]
) -> None:
    text, spans = "", []
    for word, gap in zip(words, gaps, strict=False):
        text += " " * gap
        spans.append((len(text), len(text) + len(word)))
        text += word
    text += " " * gaps[-1]
    found = segmentation(text, spans, ends, [0.5] * len(ends), None)
    pieces, covered, begin, width = [], [], 0, 0
    for t, (start, end) in enumerate(spans):  # symbol by symbol
        width += end - start
        if ends[t] or t == len(spans) - 1:
            stop = len(text) if t == len(spans) - 1 else end
            pieces.append(text[begin:stop])
            covered.append(width)
            begin, width = stop, 0
    assert (found.pieces, found.covered) == (pieces, covered)
    assert (len(found.ends), len(found.weights), found.scores) == (len(spans), len(spans), None)
