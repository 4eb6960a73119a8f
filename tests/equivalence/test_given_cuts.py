"""Cuts that are given: a model's own change nothing, batch = alone, and what is asked for is cut."""

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, make_config, score_targets, tiny_model, vocabulary
from wording import refuses

from caesura.config import Config
from caesura.data.batching import collate
from caesura.data.cuts import SymbolEnds
from caesura.data.entropy import EntropyModelCuts, NgramCuts
from caesura.data.entropy_gru import GruCuts
from caesura.data.sentences import KnownCuts, Numbered
from caesura.data.vocabulary import Vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.model_folder import CUTS_GRU, CUTS_NGRAMS, CUTS_VOCABULARY

PARTS: dict[str, Any] = {
    "reader": {"type": "bigru", "embedding_dim": 5, "size": 4},
    "cutter": {"type": "fixed", "k": 2},
    "pooling": "mean",
    "output_dim": 5,
}
ROUTING = PARTS | {"cutter": {"type": "routing", "smoothing": "character"}, "pooling": "attention"}
HMRNN = {"type": "hmrnn", "embedding_dim": 5, "size": 4, "output_dim": 5}
GIVEN = PARTS | {"cutter": "given"}
TEXTS = ["abcdefgh", "ba", "c", "hgfedcbahgf", "", "abcabc", "x bc d"]
TARGETS = ["abc", "", "d", "edcba", "", "aaaaaaaaaaaaaaaaaaaa", "☃b"]
BY_NAME = {"act": ACT, "parts": PARTS, "routing": ROUTING, "hmrnn": HMRNN}
SEGMENTERS = pytest.mark.parametrize("segmenter", BY_NAME.values(), ids=BY_NAME)


def with_cuts(cuts: dict[str, Any], segmenter: dict[str, Any] = PARTS, level: str = "char") -> Config:
    data = {"train": "t.tsv", "dev": "d.tsv", "cuts": cuts}
    sides = {side: {"lang": "xx", "level": level} for side in ("src", "trg")}
    parts = {"embedding_dim": 4, "hidden_size": 6, "attention_size": 5}
    return make_config(segmenter, {"hidden_size": 3}, parts, data=data | sides)


def bounds(pieces: list[str]) -> list[int]:
    return np.cumsum([*map(len, pieces)])[:-1].tolist()


@SEGMENTERS
def test_a_models_own_cuts_change_nothing(segmenter: dict[str, Any]) -> None:
    model = tiny_model(segmenter, seed=3)
    free = model.process(TEXTS, model.searcher(2))
    offsets = [output.segmentation.bounds for output in free]
    assert any(offsets)
    assert model.process(TEXTS, model.searcher(2), cuts=offsets) == free
    texts = [output.best for output in free]
    assert model.translate(TEXTS, 2) == model.translate(TEXTS, 2, cuts=offsets) == texts
    assert model.translate(TEXTS, 2, cuts=[None] * len(TEXTS)) == texts


@SEGMENTERS
def test_a_text_is_cut_where_it_is_asked_for_and_nowhere_else(segmenter: dict[str, Any]) -> None:
    model = tiny_model(segmenter, seed=3)
    cuts: list[Any] = [[1, 2, 5], [], (), range(1, 11), [], np.array([5]), [4]]
    result = model.segment(TEXTS, cuts=cuts)
    assert [bounds(pieces) for pieces in result] == [list(entry) for entry in cuts]
    free = model.process(TEXTS, model.searcher(1))
    forced = model.process(TEXTS, model.searcher(1), cuts=cuts)
    assert [o.hypotheses for o in free] != [o.hypotheses for o in forced]


def test_a_mapping_leaves_the_rest_to_the_model() -> None:
    model = tiny_model(PARTS)
    assert model.segment(["abcdefgh"]) == [["ab", "cd", "ef", "gh"]]
    assert model.segment(["abcdefgh"], cuts=[{4: -1, 5: 1}]) == [["ab", "cde", "f", "gh"]]
    assert model.segment(["abcdefgh"] * 2, cuts=[{2: -1}, None]) == [
        ["abcd", "ef", "gh"],
        ["ab", "cd", "ef", "gh"],
    ]


@SEGMENTERS
def test_a_sentence_with_cuts_is_the_same_alone_and_in_company(segmenter: dict[str, Any]) -> None:
    model = tiny_model(segmenter, seed=1)
    cuts: list[Any] = [[3], None, [], {2: 1, 3: -1}, None, {}, [1, 4]]
    together = model.process(TEXTS, model.searcher(2), cuts=cuts)
    scores = model.score(TEXTS, TARGETS, cuts)
    for i, output in enumerate(together):
        alone = model.process([TEXTS[i]], model.searcher(2), cuts=[cuts[i]])[0]
        assert alone.texts == output.texts
        assert alone.segmentation.pieces == output.segmentation.pieces
        for one, other in zip(alone.hypotheses, output.hypotheses, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-10)
        assert model.score([TEXTS[i]], [TARGETS[i]], [cuts[i]]) == [pytest.approx(scores[i], abs=1e-10)]


@pytest.mark.parametrize("decoder", [{}, ACT_DECODER], ids=["recurrent", "act"])
@SEGMENTERS
def test_a_score_is_what_the_target_costs_forced_through_the_decoder(
    segmenter: dict[str, Any], decoder: dict[str, Any]
) -> None:
    model = tiny_model(segmenter, seed=4, **({"decoder": decoder} if decoder else {}))
    model.config = model.config.model_copy(
        update={"testing": model.config.testing.model_copy(update={"batch_size": 2})}
    )
    scores = model.score(TEXTS, TARGETS)
    for text, target, score in zip(TEXTS, TARGETS, scores, strict=True):
        if not text:
            assert score == 0.0
            continue
        batch = collate([(model.src_vocabulary.encode(text), model.trg_vocabulary.encode(target))])
        assert batch.trg_out is not None
        assert batch.trg_lengths is not None
        with torch.no_grad():
            _, encoded = model.encode(batch.src, batch.src_lengths)
        expected = score_targets(model.decoder, encoded, batch.trg_out, batch.trg_lengths)
        assert score == pytest.approx(float(expected[0]), abs=1e-10)
        assert score < 0


def test_a_score_is_that_of_the_search() -> None:
    model = tiny_model(ACT, seed=2)
    outputs = model.process(TEXTS[:4], model.searcher(3))
    finished = [
        (t, h, s)
        for t, o in zip(TEXTS, outputs, strict=False)
        for h, s in zip(o.hypotheses, o.texts, strict=True)
        if h.finished
    ]
    assert len(finished) > 3
    scores = model.score([t for t, _, _ in finished], [s for _, _, s in finished])
    for (_, hypothesis, text), score in zip(finished, scores, strict=True):
        if "<unk>" not in text:
            assert score == pytest.approx(hypothesis.log_prob, abs=1e-8)


def test_an_empty_source_has_one_translation() -> None:
    assert tiny_model().score(["", ""], ["", "a"]) == [0.0, -math.inf]
    assert tiny_model().score([], []) == []
    with refuses(InputError, "2 ", " 1 "):
        tiny_model().score(["a", "b"], ["c"])


def test_probabilities_of_all_short_targets_sum_to_at_most_one() -> None:
    model = tiny_model(PARTS, seed=2)
    letters = model.trg_vocabulary.tokens[4:]
    targets = ["", *letters, *(a + b for a in letters for b in letters)]
    for cuts in (None, [[1, 3]] * len(targets)):
        total = sum(map(math.exp, model.score(["abcdef"] * len(targets), targets, cuts)))
        assert 0 < total <= 1 + 1e-9


# A model that has a source of cuts


@pytest.mark.parametrize("segmenter", [GIVEN, PARTS, ACT], ids=["given", "parts", "act"])
def test_a_model_cuts_new_text_as_its_config_says(segmenter: dict[str, Any], tmp_path: Path) -> None:
    config = with_cuts({"type": "characters", "characters": "c", "side": "after"}, segmenter)
    model = Translator.build(config, vocabulary(12), vocabulary(9)).eval()
    model.save_pretrained(tmp_path / "m")
    loaded = Translator.from_pretrained(tmp_path / "m")
    for translator in (model, loaded):
        pieces = translator.segment(TEXTS)
        assert all(piece.endswith("c") for text in (pieces[0], pieces[5]) for piece in text if "c" in piece)
        assert "".join(pieces[3]) == TEXTS[3]
        assert translator.segment(["abcabc"], cuts=[[1]]) == [["a", "bcabc"]]
    if segmenter is GIVEN:
        assert pieces == [
            ["abc", "defgh"],
            ["ba"],
            ["c"],
            ["hgfedc", "bahgf"],
            [],
            ["abc", "abc"],
            ["x bc", " d"],
        ]
        assert loaded.segment(["abcabcab"], cuts=[{3: -1, 1: 1}]) == [["a", "bcabc", "ab"]]
    assert loaded.translate(TEXTS) == model.translate(TEXTS)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "entropy", "gru"])
def test_what_cuts_were_learnt_from_text_is_in_the_model_folder(kind: str, tmp_path: Path) -> None:
    text = ["in gruppen spielen", "die gruppen spielten", "jung im gras spielen"] * 3
    learnt: Vocabulary | EntropyModelCuts
    if kind == "entropy":
        config = with_cuts({"type": kind, "target": 3.0, "order": 4}, GIVEN)
        learnt = NgramCuts.learn(text, config.data.cuts)  # type: ignore[arg-type]
    elif kind == "gru":
        options = {"model": kind, "size": 5, "updates": 20}
        config = with_cuts({"type": "entropy", "target": 3.0, **options}, GIVEN)
        learnt = GruCuts.learn(text, config.data.cuts)  # type: ignore[arg-type]
    else:
        config, learnt = with_cuts({"type": kind, "voc_limit": 36}, GIVEN), train_vocabulary(kind, text, 36)
    chars = train_vocabulary("char", text)
    model = Translator.build(config, chars, vocabulary(9), learnt).eval()
    model.save_pretrained(tmp_path)
    loaded = Translator.from_pretrained(tmp_path)
    kept = loaded.cuts.vocabulary if isinstance(loaded.cuts, SymbolEnds) else loaded.cuts
    assert kept is not None
    assert kept.fingerprint == learnt.fingerprint
    assert loaded.target_length == (3.0 if kind in ("entropy", "gru") else None)
    assert loaded.segment(text) == model.segment(text)
    assert loaded.segment(text)[0] != list(text[0])
    path = tmp_path / {"entropy": CUTS_NGRAMS, "gru": CUTS_GRU}.get(kind, CUTS_VOCABULARY)
    content = path.read_bytes()
    path.write_bytes(content + b" ")
    with refuses(InputError, f"{path}: "):
        Translator.from_pretrained(tmp_path)
    path.unlink()
    with refuses(InputError, f"{tmp_path}: ", path.name):
        Translator.from_pretrained(tmp_path)
    os.mkfifo(path)
    with refuses(InputError, f"{path}: "):
        Translator.from_pretrained(tmp_path)
    path.unlink()
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere.json")
    elsewhere.write_bytes(content)
    path.symlink_to(elsewhere)
    with refuses(InputError, f"{path}: "):
        Translator.from_pretrained(tmp_path)


def test_a_model_with_cuts_from_files_needs_cuts_for_new_text() -> None:
    config = with_cuts({"type": "file", "train": "a", "dev": "b"}, GIVEN)
    model = Translator.build(config, vocabulary(12), vocabulary(9)).eval()
    for cuts in (None, [[1], None]):
        with refuses(InputError, "sentence ", "cuts="):
            model.segment(["abc", "abc"], cuts=cuts)
    assert model.segment(["abc", "", "abcd"], cuts=[[1], None, {2: 1}]) == [["a", "bc"], [], ["ab", "cd"]]
    numbered = Numbered(["abc", "ab"], model.src_vocabulary)
    cut = numbered.with_cuts([np.array([0, 1, 0], np.int8), np.array([0, 0], np.int8)])
    assert [o.segmentation.pieces for o in model.process(cut, None)] == [["ab", "c"], ["ab"]]
    assert numbered.cuts is None


# What is refused


@pytest.mark.parametrize(
    ("cuts", "place"),
    [
        ([[1]], ("cuts", "2")),
        ([[1]] * 3, ("cuts", "2", "3")),
        ([None, [3]], ("sentence 2: ", "offset 3")),
        ([None, [2, 1]], ("sentence 2: ", "offset 1")),
        ([None, {1: 0}], ("sentence 2: ", "offset 1")),
        ([[1, 1], None], ("sentence 1: ", "offset 1")),
        ({0: [1], 1: [2]}, ("cuts",)),
    ],
)
def test_wrong_cuts_are_told_with_sentence_and_offset(cuts: Any, place: tuple[str, ...]) -> None:
    model = tiny_model(PARTS)
    for call in (model.translate, model.segment):
        with refuses(InputError, *place):
            call(["abcdef", "abc"], cuts=cuts)
    with refuses(InputError, *place):
        model.score(["abcdef", "abc"], ["a", "b"], cuts=cuts)
    assert not model.training


def test_a_cut_inside_a_word_is_told() -> None:
    words = train_vocabulary("word", ["ein haus am see"])
    config = with_cuts({"type": "whitespace"}, PARTS, "word")
    model = Translator.build(config, words, vocabulary(9)).eval()
    assert model.segment(["ein haus am"]) == [["ein", " haus", " am"]]
    assert model.segment(["ein haus am"], cuts=[[4]]) == [["ein", " haus am"]]
    with refuses(InputError, "sentence 2: offset 5 "):
        model.segment(["ein haus", "ein haus"], cuts=[[3], [5]])


def test_a_lookup_segmenter_takes_the_cuts_that_it_makes() -> None:
    model = tiny_model(LOOKUP)
    with refuses(InputError, "", "lookup"):
        model.translate(["abc"], cuts=[[1]])
    for cuts in (None, [1, 2], {1: 1}):
        assert model.translate(["abc"], cuts=[cuts]) == model.translate(["abc"])
        assert model.score(["abc"], ["ab"], cuts=[cuts]) == model.score(["abc"], ["ab"])
    with refuses(InputError, "", "data.cuts"):
        Translator.build(with_cuts({"type": "whitespace"}, LOOKUP), vocabulary(12), vocabulary(9))


def test_known_cuts_are_asked_for_where_a_caller_gives_none() -> None:
    model = tiny_model(PARTS | {"cutter": {"type": "fixed", "k": 99}})
    model.cuts = KnownCuts({"abc": [1]})
    assert model.segment(["abc", ""]) == [["a", "bc"], []]
    assert model.segment(["abcd"], cuts=[[2]]) == [["ab", "cd"]]
    with refuses(InputError, "'abcd': ", "--with-cuts"):
        model.segment(["abcd"])
