"""The figure beside the tables of `caesura reproduce`: what the logs have, with folders and without."""

import json
import shutil
from pathlib import Path

import pytest
from cli.program import AT_ONCE
from experiments.recipes import run
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from caesura.analysis.plots import png_of
from caesura.experiments import reproduce
from caesura.experiments.outcome import Member, Outcome
from caesura.experiments.recipe import Recipe, RecipeSystem
from caesura.experiments.result_figures import CURVES, curves_figure
from caesura.experiments.results import SystemResult
from caesura.training.checkpoint import Progress

SHOWN = (
    f"# Numbers\n\n![BLEU on dev over the training sentences seen, one line per seed, with a dot at its best \
validation]({CURVES})\n\n## The first table\n"
)
LONG = "A title that goes on for longer than the axes beneath it are wide, which is why it takes another line"
RECIPE = Recipe.model_validate(
    {
        "title": "Numbers",
        "tables": {
            "one": {"title": "$x_$", "rows": {row: {"config": "x.yaml"} for row in ("word", "bpe", "char")}},
            "two": {"title": LONG, "rows": {row: {"config": "x.yaml"} for row in ("char-3", "word", "char")}},
        },
    }
)


def outcome(bleus: list[float], beside: int = 1, seed: int = 1) -> Outcome:
    """One validated every 100 sentences, which take ten seconds."""
    way = [
        {"sentences": 100 * i, "seconds": 10.0 * i, "bleu": bleu, "verdict": "wait", "segment_length": 1.0}
        for i, bleu in enumerate(bleus, 1)
    ]
    if way:
        max(way, key=lambda v: v["bleu"])["verdict"] = "best"
    member = Member(f"one-{seed}", Path("x.yaml"), (), Path(f"one-{seed}"))
    return Outcome(member, "stopped", "", Progress(seconds=99.0), beside, None, way, {})


def result(table: str, row: str, *outcomes: Outcome, title: str = "") -> SystemResult:
    seeds = dict(enumerate(outcomes, 1))
    members = {seed: outcome.member for seed, outcome in seeds.items()}
    return SystemResult(RecipeSystem(table, row, title or row, None, members), seeds)


def drawn(axes: Axes) -> list[tuple[list[float], list[float], str]]:
    """Every line and dot, with its colour."""
    return [([*line.get_xdata()], [*line.get_ydata()], line.get_color()) for line in axes.lines]


def lines(axes: Axes) -> list[Line2D]:
    return [line for line in axes.lines if line.get_marker() in (None, "None")]


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def test_a_line_a_seed_a_dot_at_its_best_and_the_time_of_the_one_that_ran_alone() -> None:
    beside, alone, unvalidated = outcome([1.0, 4.0], beside=3), outcome([2.0, 5.0, 3.0]), outcome([])
    two = result("one", "bpe", outcome([6.0], beside=2), title="$b_p$e")
    never = result("two", "word", unvalidated)
    figure = curves_figure(RECIPE, [result("one", "word", beside, alone, unvalidated), two, never])
    [axes] = figure.axes
    blue, red = (line.get_color() for line in lines(axes)[::2])
    assert drawn(axes) == [
        ([100, 200], [1.0, 4.0], blue),
        ([200], [4.0], blue),
        ([100, 200, 300], [2.0, 5.0, 3.0], blue),
        ([200], [5.0], blue),
        ([100], [6.0], red),
        ([100], [6.0], red),
    ]
    assert [dot.get_marker() for dot in axes.lines if dot not in lines(axes)] == ["o"] * 3
    assert texts(axes) == ["word: 20s", "$b_p$e: 10s*", "time to best (* side by side)"]
    assert [text.get_color() for text in axes.texts[:2]] == [blue, red]
    assert [text.xy for text in axes.texts[:2]] == [(300, 3.0), (100, 6.0)]
    assert axes.get_xlim()[0] == axes.get_ylim()[0] == 0
    figure.draw_without_rendering()  # $ is no mathematics
    assert [label.get_text() for label in axes.get_xticklabels()][1] == "50"


def test_a_panel_a_table_where_a_kind_of_system_keeps_its_colour() -> None:
    systems = [("one", "word"), ("one", "char"), ("two", "char-3"), ("two", "word"), ("two", "char")]
    some = [result(table, row, outcome([1.0, 2.0])) for table, row in systems]
    one, two = curves_figure(RECIPE, some).axes
    titles = [axes.get_title(loc="left") for axes in (one, two)]
    assert [title.replace("\n", " ") for title in titles] == ["$x_$", LONG]
    assert [title.count("\n") for title in titles] == [0, 1]
    looks = [(line.get_color(), line.get_linestyle()) for axes in (one, two) for line in lines(axes)]
    word, char, deeper, again, beside = looks
    assert word == again
    assert len({word[0], char[0]}) == 2
    assert {char[0], deeper[0], beside[0]} == {char[0]}
    assert (char[1], deeper[1], beside[1]) == ("-", "-", "--")
    assert texts(one)[-1] == "time to best"
    assert [axes.get_xlabel() for axes in (one, two)] == ["", "training sentences seen"]
    [alone] = curves_figure(RECIPE, some[-1:]).axes  # what is not there changes nothing
    assert [(line.get_color(), line.get_linestyle()) for line in lines(alone)] == [beside]


@pytest.mark.usefixtures("drawn")
def test_it_is_beside_the_tables_and_the_same_from_what_was_kept(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, calls = recipe.parent / "out", []

    def again(*options: str) -> bytes:
        run(recipe, "--only", "word", *options)
        assert (out / "table.md").read_text(encoding="utf-8").startswith(SHOWN)
        return (out / CURVES).read_bytes()

    def counted(figure: Figure) -> bytes:
        calls.append(figure)
        return png_of(figure)

    monkeypatch.setattr(reproduce, "png_of", counted)
    run(recipe, "--only", "word", "--time-limit", AT_ONCE)
    assert not (out / CURVES).exists()
    assert "![" not in (out / "table.md").read_text(encoding="utf-8")
    trained = again()
    assert len(calls) == 1  # and not whenever one is through
    log = out / "first-word-1" / "metrics.jsonl"
    *way, last = log.read_text(encoding="utf-8").splitlines(keepends=True)
    record = json.loads(last) | {"verdict": "best"}
    longer = [
        record | {"sentences": 400 * n, "bleu": n**2 / 7} for n in (1, 9, 10)
    ]  # not all digits are kept
    log.write_text("".join(way) + "".join(f"{json.dumps(v)}\n" for v in longer), encoding="utf-8")
    seen = again()
    assert seen != trained
    for path in [CURVES, *(path.name for path in out.glob("first-*"))]:
        shutil.rmtree(out / path) if (out / path).is_dir() else (out / path).unlink()
    assert again("--time-limit", AT_ONCE) == seen
    assert [*out.glob("first-*")] == []
