"""Columns that only some tables have: rates, what was measured of cuts, the time of an update."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli.program import AT_ONCE
from experiments.recipes import RECIPE, run

from caesura.experiments import recipe as recipes
from caesura.experiments.outcome import Measure, Member, Outcome
from caesura.experiments.panel_figures import MOVES, SECONDS, panels_figure
from caesura.experiments.recipe import FILE, Recipe, RecipeSystem
from caesura.experiments.result_figures import by_length_figure, series_of
from caesura.experiments.result_tables import comparison_table, explained, off_rates, seeds_table
from caesura.experiments.results import SystemResult
from caesura.training.checkpoint import Progress

CUTS = {
    "fidelity": {"cosine": 0.934, "cosine_error": 0.021},
    "flips": None,
    "boundaries": {"white space": {"f1": 0.41, "chance": 0.35}},
}


def result(
    row: str, length: float, bleu: float, series: str | None = None, cuts: Any = None, **best: Any
) -> SystemResult:
    """One seed, tested."""
    way = {"verdict": "best", "bleu": bleu, "chrf": bleu, "segment_length": length, "longest_segment": 9}
    measured = {"test": {"scores": {"bleu": bleu, "chrf": bleu, "chrf_bigram": bleu}}}
    measured |= {} if cuts is None else {"cuts": cuts}
    member = Member(row, Path("x.yaml"), (), Path(row))
    validations = [way | {"seconds": 1.0} | best]
    outcome = Outcome(member, "finished", "done", Progress(seconds=9.0), 1, None, validations, measured)
    return SystemResult(RecipeSystem("t", row, row, None, {1: member}, series), {1: outcome})


def cells(results: list[SystemResult]) -> list[dict[str, Any]]:
    table = comparison_table("t", "a table", results)
    return [dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows]


def test_a_column_is_there_where_a_row_has_something_for_it() -> None:
    plain = result("char", 1.0, 20.0)
    assert not {"asked", "fidelity", "best flip", "word F1 / random", "ms per update"} & {*cells([plain])[0]}
    assert explained(comparison_table("t", "a table", [plain])) == []
    cif = result("cif", 4.01, 22.0, cuts=CUTS, target_length=4.0)
    one, two = cells([plain, cif])
    assert (one["asked"], one["fidelity"], one["word F1 / random"]) == ("", "", "")
    assert (two["asked"], two["segments (longest)"]) == ("4", "4.01 (9)")
    assert (two["fidelity"], two["word F1 / random"]) == ("0.93 ± 0.02", "0.410 / 0.350")
    assert "best flip" not in two
    assert len(explained(comparison_table("t", "a table", [plain, cif]))) == 3
    [row] = seeds_table([cif]).rows
    assert {4.0, 0.934, 0.021, 0.41, 0.35} <= {*row}


def test_scores_of_unseen_lines_stand_beside_those_of_all_lines() -> None:
    def tested(sentences: int) -> SystemResult:
        made = result("char", 1.0, 20.0)
        [outcome] = made.outcomes.values()
        test = outcome.measured["test"]
        test = {"scores": test["scores"] | {"sentences": 9}}
        test["unseen"] = {"sentences": sentences, "bleu": 12.5, "chrf": 30.0}
        return replace(made, outcomes={1: replace(outcome, measured={"test": test})})

    assert cells([tested(7), result("old", 1.0, 9.0)])[0]["BLEU, unseen (lines)"] == "12.50 (7)"
    assert "BLEU, unseen (lines)" not in cells([tested(9)])[0]  # all lines are unseen


@pytest.mark.parametrize("cuts", [{}, {"fidelity": None, "boundaries": []}, {"fidelity": {"cosine": None}}])
def test_what_could_not_be_measured_is_left_blank(cuts: Any) -> None:
    assert "fidelity" not in cells([result("act", 1.0, 20.0, cuts=cuts)])[0]


def test_the_time_of_an_update_has_the_star_of_times() -> None:
    made = result("cif", 4.0, 22.0)
    [outcome] = made.outcomes.values()
    timed = replace(made, outcomes={1: replace(outcome, milliseconds=31.26, side_by_side=3)})
    assert cells([timed])[0]["ms per update"] == "31.3*"
    assert timed.record()["figures"]["milliseconds"]["mean"] == 31.26


def test_a_row_off_its_rate_is_told() -> None:
    good, bad = result("good", 4.1, 22.0, target_length=4.0), result("bad", 3.0, 22.0, target_length=4.0)
    [note] = off_rates([result("char", 1.0, 20.0), good, bad])
    assert note.startswith("bad, seed 1")


def test_the_figure_has_a_line_per_series_with_its_tested_systems() -> None:
    rows = {name: {"config": "x", "series": "$a_$"} for name in ("a4", "a2")} | {
        "b": {"config": "x", "series": "b"}
    }
    recipe = Recipe.model_validate({"title": "T", "tables": {"t": {"title": "$x_$", "rows": rows}}})
    untested = result("c", 3.0, 20.0, "b")
    [outcome] = untested.outcomes.values()
    untested = replace(untested, outcomes={1: replace(outcome, measured={})})
    made = [result("a4", 4.0, 20.0, "$a_$"), result("a2", 2.0, 22.0, "$a_$"), result("x", 1.0, 9.0), untested]
    assert series_of(made) == {"t": {"$a_$": [(2.0, 22.0), (4.0, 20.0)]}}
    figure = by_length_figure(recipe, [*made, result("b", 3.0, 21.0, "b")])
    [axes] = figure.axes
    lines = {line.get_label(): [*zip(line.get_xdata(), line.get_ydata(), strict=True)] for line in axes.lines}
    assert lines == {"$a_$": [(2.0, 22.0), (4.0, 20.0)], "b": [(3.0, 21.0)]}
    assert len({line.get_color() for line in axes.lines}) == 2
    figure.draw_without_rendering()


def test_a_panel_without_a_number_of_its_table_is_left_out() -> None:
    rows = {"a": {"config": "x.yaml", "series": "a"}}
    tables = {name: {"title": name, "rows": rows} for name in ("t", "u")}
    recipe = Recipe.model_validate({"title": "x", "tables": tables})
    measured = {"flips": {"best": 0.1, "greedy": 0.2}, "fidelity": None}
    here, there = result("a", 2.0, 22.0, "a", cuts=CUTS), result("a", 2.0, 22.0, "a", cuts=measured)
    there = replace(there, system=replace(there.system, table="u"))
    figure = panels_figure(recipe, [here, there], MOVES)
    shown = [axes.get_ylabel() for axes in figure.axes if axes.axison]
    assert [label.partition(",")[0] for label in shown] == ["fidelity", "best flip", "greedy flips"]
    assert len(figure.axes) == 6


def test_a_figure_of_times_says_how_many_trainings_shared_the_machine() -> None:
    recipe = Recipe.model_validate(
        {"title": "x", "tables": {"t": {"title": "t", "rows": {"a": {"config": "x.yaml", "series": "a"}}}}}
    )
    [before] = result("a", 2.0, 22.0, "a").outcomes.values()
    timed = {n: replace(before, side_by_side=n, milliseconds=9.0) for n in (1, 3)}
    alone, shared = (replace(result("a", 2.0, 22.0, "a"), outcomes={1: timed[n]}) for n in timed)
    for results, beside in (([alone], ""), ([alone, shared], "1 to 3"), ([shared], "3")):
        [axes] = [axes for axes in panels_figure(recipe, results, SECONDS).axes if axes.axison]
        assert axes.get_xlabel() == "ms per update" + f"\n{beside} side by side" * bool(beside)


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_measure_that_the_recipe_names_is_made_kept_and_asked_for(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = Measure("cuts", lambda m: ("caesura.cli", "evaluate", str(m.folder), "--json", "--beam", "1"))
    monkeypatch.setattr(recipes, "cuts_of_dev", lambda _: stand_in)
    text = RECIPE.replace("{config: act.yaml}", "{config: act.yaml, series: act}")
    (recipe / FILE).write_text(text, encoding="utf-8")
    out = recipe.parent / "out"
    run(recipe, "--only", "act")
    kept = out / "metrics" / "second-act-1.jsonl"
    assert [*json.loads(kept.read_text().splitlines()[-1])["measured"]] == ["test"]
    before = kept.read_text()
    (recipe / FILE).write_text(f"measures: [cuts]\n{text}", encoding="utf-8")
    done = run(recipe, "--only", "act")  # the folder is there: measured, not trained
    assert "second-act-1: measuring" in done.out
    assert [*json.loads(kept.read_text().splitlines()[-1])["measured"]] == ["test", "cuts"]
    assert not (out / "by_length.png").exists()  # of one point
    again = text.replace("      act: {", "      again: {config: act.yaml, series: act}\n      act: {")
    (recipe / FILE).write_text(f"measures: [cuts]\n{again}", encoding="utf-8")
    run(recipe, "--only", "second")
    assert (out / "by_length.png").exists()
    assert "](by_length.png)" in (out / "table.md").read_text(encoding="utf-8")
    for path in out.glob("second-act-1*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "has it: not trained again" in run(recipe, "--only", "act").out
    kept.write_text(before, encoding="utf-8")
    done = run(recipe, "--only", "act", "--time-limit", AT_ONCE)
    assert "has it without its cuts: trained again" in done.out
