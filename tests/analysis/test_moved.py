"""Moving cuts: for which sentences and models it is done, and its chapter."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from analysis.subjects import LINES, SMALL, subject
from analysis.test_flips import CIF, FIXED
from analysis.test_report import Page, keep_chapters
from helpers import ACT, LOOKUP, tiny_model

import caesura
from caesura.analysis.fidelity import fidelity
from caesura.analysis.findings import Analysis
from caesura.analysis.flips import all_flips, flip_statistics, flips
from caesura.analysis.maps import flips_figure
from caesura.analysis.moved import LONGEST, movable, move_cuts
from caesura.analysis.moved_chapter import _flips, _gradient
from caesura.analysis.report import Report
from caesura.analysis.study import AnalysisSettings, analyse
from caesura.inference import Translator

GIVEN = {**CIF, "cutter": {"type": "given"}, "pooling": "mean", "rate": None}
SOURCES, TARGETS = ["abcdefgh", "hgabba", "ddcca"], ["abcd", "bbca", "cab"]


def given_model() -> Translator:
    """A model that cuts after each b, and nowhere else."""
    rule = {"type": "characters", "characters": "b", "side": "after"}
    side = {"lang": "xx", "level": "char"}
    data = {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side, "cuts": rule}
    return tiny_model(GIVEN, data=data)


def test_both_measures_are_public() -> None:
    assert caesura.fidelity is fidelity
    assert caesura.flips is flips


def test_what_is_moved_is_what_fidelity_and_flips_measure() -> None:
    model = tiny_model(CIF)
    moves = move_cuts(model, [*SOURCES, "", "a", "abc"], [*TARGETS, "a", "a", " "])
    assert moves is not None
    assert moves.sentences == 3
    assert moves.fidelity == fidelity(model, model.batch(SOURCES, TARGETS))
    assert moves.flips == flip_statistics(all_flips(model, SOURCES, TARGETS))


def test_sentences_are_counted_as_they_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caesura.analysis.moved.TOGETHER", 2)
    monkeypatch.setattr("caesura.analysis.losses.SYMBOLS", 200)
    stages: list[tuple[str, int, int]] = []
    moves = move_cuts(tiny_model(ACT), SOURCES, TARGETS, lambda *stage: stages.append(stage))
    assert [stage[1:] for stage in stages if stage[0] == "flipping cuts"] == [(2, 3), (1, 3)]
    assert sum(done for what, done, _ in stages if what == "shifting scores") == 3
    assert moves is not None
    assert moves.flips is not None
    whole = flip_statistics(all_flips(tiny_model(ACT), SOURCES, TARGETS))
    assert asdict(moves.flips) == pytest.approx(asdict(whole), abs=1e-12)


def test_the_cuts_of_a_rule_are_the_baseline() -> None:
    model = given_model()
    one = flips(model, "abcbde", "abc")
    assert one.cuts == [False, True, False, True, False]
    assert one.hardening == 0
    [loss] = model.score(["abcbde"], ["abc"])
    assert one.hard == pytest.approx(-loss / 4, abs=1e-12)
    [joined] = model.score(["abcbde"], ["abc"], cuts=[[4]])
    assert one.flipped[1] == pytest.approx(-joined / 4, abs=1e-12)
    moves = move_cuts(model, SOURCES, TARGETS)
    assert moves is not None
    assert moves.fidelity is None
    assert moves.flips is not None
    assert moves.flips.gaps == sum(len(source) - 1 for source in SOURCES)
    assert moves.flips.agreeing is None


@pytest.mark.parametrize(
    ("segmenter", "source", "target"),
    [(LOOKUP, "abc", "a"), (ACT, "a", "a"), (ACT, " ", "a"), (ACT, "abc", ""), (ACT, "ab" * LONGEST, "a")],
)
def test_there_may_be_nothing_to_move(segmenter: dict, source: str, target: str) -> None:
    assert move_cuts(tiny_model(segmenter), [source], [target]) is None


def test_a_sentence_needs_a_reference_and_must_not_be_too_long() -> None:
    assert movable("a" * LONGEST, "a")
    assert not movable("a" * (LONGEST + 1), "a")
    assert not movable("a", None)


@pytest.fixture(scope="module")
def analyses() -> list[Analysis]:
    settings = replace(SMALL, translate=0, lines=(3, 6), moved=5)
    models = {"char": LOOKUP, "<i>act": ACT | {"cut_after": "b"}, "cif": CIF, "fixed": FIXED}
    return [analyse(subject(s, n), LINES, "text", None, settings) for n, s in models.items()]


def test_settings_say_how_many_sentences(analyses: list[Analysis]) -> None:
    assert AnalysisSettings().moved == 20
    assert [a.moved and a.moved.sentences for a in analyses] == [None, 5, 5, 5]
    assert [[d.flips and d.flips.source for d in a.drawn] for a in analyses[:2]] == [
        [None] * 2,
        ["abc de", "abc de fgh"[:9]],
    ]
    none = analyse(subject(), LINES, "text", None, replace(SMALL, translate=0, moved=0))
    assert none.moved is None
    assert all(d.flips is None for d in none.drawn)
    bare = [replace(line, reference=None) for line in LINES]
    silent = analyse(subject(), bare, "text", None, replace(SMALL, translate=0))
    assert silent.moved is None
    assert all(d.flips is None for d in silent.drawn)


@pytest.mark.usefixtures("sketched")
def test_the_chapter_has_both_figures_and_says_what_there_is_not(
    analyses: list[Analysis], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep_chapters(monkeypatch, "moved")
    html, figures = Report(analyses).page()
    Page(html)
    drawn = {f"flips-{name}-{n}" for name in ("-i-act", "cif", "fixed") for n in (3, 6)}
    assert set(figures) == drawn | {"gradient--i-act", "gradient-cif"}
    assert "No cuts of char were moved" in html
    assert "&lt;i&gt;act" in html
    assert "<i>act" not in html
    assert html.count("The cosine between") + html.count("Noise hides how close") == 2  # fixed has no scores
    Report(analyses).write(tmp_path)
    with (tmp_path / "tables" / "moved.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["<i>act", "cif", "fixed"]
    assert float(rows[1]["best flip"]) == analyses[2].moved.flips.best  # type: ignore[union-attr]
    assert (rows[2]["cosine"], rows[2]["direction known"]) == ("", "")
    assert (tmp_path / "tables" / "gradients.csv").exists()
    numbers = json.loads((tmp_path / "analysis.json").read_text(encoding="utf-8"))
    assert numbers["models"][2]["moved"]["flips"]["best"] == analyses[2].moved.flips.best  # type: ignore[union-attr]
    assert numbers["models"][0]["moved"] is None


def test_the_direction_of_training_is_told_in_words(analyses: list[Analysis]) -> None:
    assert analyses[1].moved is not None
    assert analyses[1].moved.fidelity is not None
    one = replace(analyses[1].moved.fidelity, cosine=0.5, cosine_error=0.1, true_sum_error=0.1)
    wrong = _gradient(replace(one, autograd_sum=1.0, true_sum=-1.0, signs_agree=False))
    assert "0.50 ± 0.10" in wrong
    assert "towards longer segments, but the loss would rise" in wrong
    right = _gradient(replace(one, autograd_sum=-1.0, true_sum=-1.0, signs_agree=True))
    assert "towards shorter segments, and the loss would fall" in right
    assert "Noise hides whether" in _gradient(replace(one, signs_agree=None))
    assert "Noise hides how close" in _gradient(replace(one, cosine=None))
    assert "estimates" not in wrong
    assert "from shifted scores" in _gradient(replace(one, estimated=True, sigma=0.5))
    assert "from drawn cuts" in _gradient(replace(one, estimated=True, sigma=None))
    assert "set by the rate" in _gradient(replace(one, autograd_sum=None))
    assert analyses[1].moved.flips is not None
    costly = _flips(replace(analyses[1].moved.flips, best=-0.5, hardening=-0.25))
    assert "costs 0.5000" in costly
    assert "hard gains 0.2500" in costly


def test_a_gap_that_is_kept_has_no_bar_and_long_sentences_are_cut_off() -> None:
    one = flips(tiny_model(ACT | {"cut_after": "b", "halting_bias": -20.0}), "abcbd", "ab")
    [axes] = flips_figure(one).axes
    assert [round(bar.get_x() + bar.get_width() / 2, 6) for bar in axes.patches] == [0.5, 2.5]
    assert [line.get_xdata()[0] for line in axes.lines[:2]] == [1.5, 3.5]
    assert [label.get_text() for label in axes.get_xticklabels()] == [*"abcbd"]
    long = flips(tiny_model(FIXED), "$a b$" * 20, "ab", rounds=0)
    [axes] = flips_figure(long).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == [*("$a␣b$" * 16)]
    assert len(axes.patches) == 79
