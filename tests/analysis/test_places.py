"""Where cuts fall: surprisal by hand, cuts that are kept and compared, words by frequency, details."""

import json
import math
import time
from pathlib import Path

import pytest
from helpers import tiny_model
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis import robust
from caesura.analysis.details import UNIT, details
from caesura.analysis.frequency import by_frequency
from caesura.analysis.lines import Line
from caesura.analysis.places import KeptCuts, learn_ngrams, surprisal
from caesura.analysis.robust import measure_robust
from caesura.analysis.training_text import TrainingText
from caesura.data.words import WordCounts
from caesura.evaluation.bootstrap import UnitCounts
from caesura.evaluation.scores import score

cut_lines = st.lists(st.lists(st.booleans(), max_size=9), max_size=5)


def texts_of(lines: list[list[bool]]) -> tuple[list[str], list[list[int]]]:
    """A text with these cuts at its gaps."""
    texts = ["x" * (len(line) + 1) for line in lines]
    return texts, [[i + 1 for i, cut in enumerate(line) if cut] for line in lines]


@given(cut_lines)
def test_cuts_come_back_as_they_were(lines: list[list[bool]]) -> None:
    kept = KeptCuts.of(*texts_of(lines))
    again = KeptCuts.read(json.loads(json.dumps(kept.record())))
    assert again.cuts.tolist() == [cut for line in lines for cut in line]
    assert (again.lines, again.text) == (len(lines), kept.text)


def test_agreement_of_two_models_and_by_chance() -> None:
    texts = ["abcd", "", "efghi"]  # 3 + 0 + 4 gaps
    one, two = KeptCuts.of(texts, [[1, 3], [], [2]]), KeptCuts.of(texts, [[1], [], [3]])
    assert one.agreement(two) == pytest.approx((2 / 5, 2 * (3 * 2 / 7) / 5))
    assert one.agreement(one) == pytest.approx((1.0, 3 / 7))
    assert one.agreement(KeptCuts.of(["abcd", "", "efghj"], [[], [], []])) is None
    none = KeptCuts.of(texts, [[], [], []])
    assert none.agreement(none) == (0.0, 0.0)


@pytest.mark.parametrize("broken", [{}, {"packed": "x"}, {"gaps": 99}, {"gaps": "3"}, {"packed": "eJw="}])
def test_damaged_cuts_are_refused(broken: dict) -> None:
    record = KeptCuts.of(["abcd"], [[1]]).record()
    with pytest.raises(ValueError, match="packed cuts"):
        KeptCuts.read((record | broken) if broken else {})


def test_cuts_before_hard_characters_have_more_than_their_share() -> None:
    model = learn_ngrams(["abab", "abac"] * 9)
    assert model is not None
    text = "abab"
    bits = model.surprisals(text)
    results = surprisal(model, [text, "a"], [[3], []])
    assert results is not None
    assert results.at_cuts == pytest.approx(bits[3])
    assert results.everywhere == pytest.approx(bits[1:].mean())
    assert (results.cuts, results.gaps) == (1, 3)
    assert results.enrichment > 2
    every = surprisal(model, [text], [[1, 2, 3]])
    assert every is not None
    assert every.enrichment == pytest.approx(1)
    assert surprisal(model, [text], [[]]) is None
    assert learn_ngrams(["", " "]) is None


def test_words_are_grouped_by_their_number_in_training() -> None:
    words = WordCounts({"the": 5000, "cat": 99, "sat": 9, "mat": 1}, 5109, True)
    results = by_frequency(["the cat cat dog", "Mat"], ["the cat sat", "dog mat"], words)
    assert [group.name for group in results] == ["0", "1–9", "10–99", "100–999", "1,000 or more"]
    assert [(g.expected, g.written, g.matched) for g in results] == [
        (1, 1, 0), (2, 1, 0), (1, 2, 1), (0, 0, 0), (1, 1, 1),
    ]  # fmt: skip
    assert [group.recall for group in results] == [0.0, 0.0, 1.0, 0.0, 1.0]


def test_details_have_what_a_bootstrap_needs() -> None:
    references, written = ["the cat sat", "a mat", "the dog", "ran on"], ["the cat", "a mat", "a dog", "on"]
    counts = WordCounts({"the": 20, "cat": 1}, 21, True)
    testing = tiny_model().config.testing
    results = details(
        ["die katze", "x", "y", "z"], written, references, TrainingText(counts, counts), testing
    )
    results = json.loads(json.dumps(results, allow_nan=False))
    units = UnitCounts.unpacked(results["units"]["packed"])
    assert (len(units), results["units"]["lines"]) == (math.ceil(4 / UNIT), UNIT)
    scores = score(written, references)
    assert (units.bleu, units.chrf) == (scores.bleu, scores.chrf)
    assert sum(group["sentences"] for group in results["by_length"]) == 4
    assert results["by_frequency"][1]["expected"] == 1
    assert {"unknown_output", "copied", "repeating"} <= {*results["errors"]}
    bare = details(["die katze"], ["a b"], ["a c"], TrainingText(None, None, Path()), testing)
    assert (bare["by_frequency"], bare["by_rarity"], bare["unseen"]) == (None, None, None)
    lines = ["a", "b", "c", "d"], written, references, TrainingText(counts, counts), testing
    some = score(written[1:3], references[1:3])
    assert details(*lines, [1, 2])["unseen"] == {"sentences": 2, "bleu": some.bleu, "chrf": some.chrf}
    assert details(*lines, [])["unseen"] is None


def test_the_clock_of_a_beam_starts_after_what_is_captured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, happened = tiny_model(), list[str]()
    process, clock = model.process, time.perf_counter
    monkeypatch.setattr(model, "process", lambda *texts: (happened.append("some"), process(*texts))[1])
    monkeypatch.setattr(robust.time, "perf_counter", lambda: (happened.append("clock"), clock())[1])
    monkeypatch.setattr(robust, "HYPOTHESES", 4)
    for captured, before in ((False, []), (True, ["some"])):
        happened.clear()
        monkeypatch.setattr(robust, "wanted", lambda device, captured=captured: captured)
        robust._beam(model, ["abc", "ab", "a"], ["a"] * 3, 2, lambda *_: None)
        assert happened == [*before, "clock", "some", "some", "clock"]


def test_noise_and_beams_on_the_same_lines_whatever_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robust, "BEAMS", (1, 4))
    monkeypatch.setattr(robust, "HYPOTHESES", 8)
    model = tiny_model()
    lines = [Line(i, "abcd efg"[: 3 + i], "ab") for i in range(1, 6)] + [Line(6, "abc")]
    done: list[int] = []
    results = measure_robust(model, lines, "text", 4, report=lambda _, more, total: done.append(more))
    assert results.sentences == 4
    assert [one.beam for one in results.beams] == [1, 4]
    assert results.noise is not None
    assert [*results.noise.bleu] == ["drop", "swap", "keyboard", "case"]
    assert results.beams[0].chrf == pytest.approx(results.noise.chrf["drop"][0])
    assert all(one.seconds > 0 for one in results.beams)
    assert [*json.loads(json.dumps(results.record()))] == ["sentences", "noise", "beams"]
    assert [len(table.rows) for table in results.tables()] == [4, 2]
    again = measure_robust(model, lines[:5], "text", 4)
    assert again.noise == results.noise
    assert sum(done) > 2 * 4
