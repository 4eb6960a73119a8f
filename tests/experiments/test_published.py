"""What `caesura reproduce` writes for readers elsewhere: calls, settings, times, cards."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from cli.program import AT_ONCE
from experiments.recipes import RECIPE, rows, run

from caesura.experiments.outcome import Member, Outcome
from caesura.experiments.provenance import without_folders
from caesura.experiments.recipe import FILE, RecipeSystem, unique_titles
from caesura.experiments.result_tables import comparison_table, timing
from caesura.experiments.results import SystemResult
from caesura.training.checkpoint import Progress


def test_each_row_is_listed_with_the_call_that_made_it(recipe: Path) -> None:
    run(recipe, "--only", "word")
    run(recipe, "--only", "act", "--set", "model.segmenter.tau=0.5")  # which a word model does not have
    run(recipe, "--only", "word", "--parallel", 2)
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    made = re.findall(r"^- Made by `caesura (.*)` with caesura .* on .+\.$", text, re.M)
    assert [line.partition("--no-report ")[2] for line in made] == [
        "--only word",
        "--only act --set model.segmenter.tau=0.5",
    ]
    content = json.loads((recipe.parent / "out" / "table.json").read_bytes())
    assert "model.segmenter.tau=0.5" in content["tables"]["second"][0]["seeds"]["1"]["settings"]


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_what_is_set_otherwise_than_a_title_says_is_under_it(recipe: Path) -> None:
    both = "      more: {config: word.yaml, title: more words}\n"
    (recipe / FILE).write_text(RECIPE + both, encoding="utf-8")
    run(recipe, "--only", "second,word", "--device", "cpu", "--set", "training.updates=5")
    run(
        recipe,
        "--only",
        "first-char",
        "--seeds",
        "1",
        "--set",
        "training.seed=3",
        "--set",
        "data.max_chars=26",
    )
    done = run(recipe, "--only", "first-char", "--seeds", "1,2", "--set", "data.max_chars=26")
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    first = "Other than in the recipe: `training.updates=5` (word); `data.max_chars=26` (characters).\n"
    assert f"\n## The first table\n\n{first}\n| system |" in text
    assert "\n## The second table\n\nOther than in the recipe: `training.updates=5`.\n\n| system |" in text
    assert text.count("Other than") == 2
    assert first in done.out


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_each_finished_system_keeps_the_card_of_its_best_seed(recipe: Path) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "char,act", "--set", "model.segmenter.embedding_dim=9")
    assert sorted(path.name for path in out.glob("cards/*")) == ["first-char.md", "second-act.md"]
    linked = "- Cards, each of the seed that did best on dev: [characters](cards/first-char.md).\n"
    assert linked in (out / "table.md").read_text(encoding="utf-8")
    best = max(
        (row for row in rows(recipe) if row["system"] == "char"), key=lambda row: float(row["dev_bleu"])
    )
    card = (out / "cards" / "first-char.md").read_text(encoding="utf-8")
    assert card.startswith(f"# characters (first-char-{best['seed']})\n\nA Caesura translation model from de")
    assert "embedding_dim 9" in card
    assert f"- BLEU {float(best['bleu']):.2f} (`BLEU|nrefs:1|" in card
    assert f"- chrF2 {float(best['chrf']):.2f} (`chrF2|nrefs:1|" in card
    assert "On the test set (beam 5, alpha 1.0, beta 0.0, precision float32):" in card
    assert (
        f"`train.de`, `train.en` (60 pairs read, 60 kept) with seed {best['seed']} (of 1, 2 the best" in card
    )
    assert "The training text has 60 pairs, 50% of the paper's 120, of which" in card
    assert (
        "Made by `caesura reproduce numbers --data data --out out --no-report --only char,act --set " in card
    )
    assert "A model for research." in card
    for target in re.findall(r"\]\(([^)]+)\)", card):
        assert (out / "cards" / target).is_file()
    shutil.rmtree(out / f"first-char-{best['seed']}")
    run(recipe, "--only", "act", "--set", "model.segmenter.embedding_dim=9")
    assert (out / "cards" / "first-char.md").read_text(encoding="utf-8") == card
    assert linked in (out / "table.md").read_text(encoding="utf-8")


def test_a_card_has_the_figures_of_a_test_also_where_an_earlier_version_made_it(recipe: Path) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "act")
    path, card = out / "second-act-1" / "test.json", out / "cards" / "second-act.md"
    tested = json.loads(path.read_bytes())
    columns = {"live", "penalty", "remainder"}
    assert {*tested["figures"]} == columns
    live = f"- live: {tested['figures']['live']:.1%} (of characters): share of characters"
    first = card.read_text(encoding="utf-8")
    assert live in first
    assert "\n- remainder: " in first
    [row] = json.loads((out / "table.json").read_bytes())["tables"]["second"]
    assert columns <= {*row["seeds"]["1"]["best"]}
    tested["gradient_share"] = tested.pop("figures")["live"]
    path.write_text(json.dumps(tested), encoding="utf-8")
    run(recipe, "--only", "act")
    again = card.read_text(encoding="utf-8")
    assert live in again
    assert "\n- remainder: " not in again


def test_no_card_before_the_end_and_no_scores_before_the_test(recipe: Path) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "word,act", "--time-limit", AT_ONCE)
    assert not (out / "cards").exists()
    run(recipe, "--only", "word,act")
    (out / "second-act-1" / "test.json").unlink()
    (out / "metrics" / "second-act-1.jsonl").unlink()
    run(recipe, "--only", "word", "--set", "training.updates=12")
    card = (out / "cards" / "second-act.md").read_text(encoding="utf-8")
    assert "It has not been tested yet." in card
    assert "at its best validation: BLEU " in card


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("--data", "--data"),
        ("runs/one", "runs/one"),
        ("./one", "./one"),
        ("/home/me/my data/one", "one"),
        ("/home/me/one/", "one/"),
        ("../../one", "one"),
        ("~/one", "one"),
        ("--data=/home/me/one", "--data=one"),
        ("data.train={src: /home/me/a.de, trg: ../b.en}", "data.train={src: a.de, trg: b.en}"),
        ("data.train={src: a/b.de, trg: a-b/c.en}", "data.train={src: a/b.de, trg: a-b/c.en}"),
    ],
)
def test_a_call_is_told_without_the_folders_of_the_machine(word: str, shown: str) -> None:
    assert without_folders(word) == shown


def outcome(seed: int, bleu: float, tested: bool = True, beside: int = 1) -> Outcome:
    """One that was at its best after ten times its BLEU in seconds, and ended after twenty times."""
    best = {"verdict": "best", "bleu": bleu, "segment_length": bleu, "longest_segment": int(bleu)}
    best |= {"seconds": 10 * bleu, "chrf": bleu}
    measured = {"test": {"scores": {"bleu": bleu, "chrf": bleu, "chrf_bigram": bleu}}} if tested else {}
    member = Member(f"one-{seed}", Path("one.yaml"), (), Path(f"one-{seed}"))
    return Outcome(member, "stopped", "", Progress(seconds=20 * bleu), beside, None, [best], measured)


def result_of(*outcomes: Outcome, title: str = "one") -> SystemResult:
    seeds = {int(outcome.member.name.removeprefix("one-")): outcome for outcome in outcomes}
    members = {seed: outcome.member for seed, outcome in seeds.items()}
    return SystemResult(RecipeSystem("table", "one", title, None, members), seeds)


def test_all_figures_of_a_row_are_of_the_seeds_that_were_tested() -> None:
    result = result_of(outcome(1, 10.0), outcome(2, 30.0, tested=False))
    means = {name: figure["mean"] for name, figure in result.record()["figures"].items()}
    assert (means["bleu"], means["dev_bleu"], means["segment_length"]) == (10.0, 10.0, 10.0)
    [row] = comparison_table("table", "a table", [result]).rows
    assert row[:5] == ["one", 1, "10.00", "10.00", "10.00"]
    assert row[7:10] == ["10.00 (10)", "1m40s", "3m20s"]
    [row] = comparison_table("table", "a table", [result_of(outcome(2, 30.0, tested=False))]).rows
    assert row[1:5] == [1, "", "", "30.00"]


def test_times_are_of_the_seeds_that_ran_alone() -> None:
    alone = result_of(outcome(1, 6.0), outcome(2, 12.0))
    mixed = result_of(outcome(1, 6.0, beside=3), outcome(2, 12.0), outcome(3, 24.0, beside=2), title="two")
    never = result_of(outcome(1, 6.0, beside=3), outcome(2, 12.0, beside=2), title="three")
    # One that did not have company, but was not tested, or has not begun, has no say.
    untested = result_of(outcome(1, 6.0, beside=2), outcome(2, 12.0, tested=False), title="four")
    waiting = replace(outcome(2, 0.0, tested=False), validations=[])
    begun = result_of(replace(outcome(1, 6.0, tested=False, beside=2), validations=[]), waiting)
    rows = comparison_table("table", "a table", [alone, mixed, never, untested, begun]).rows
    times = [
        ["1m30s", "3m00s"],
        ["2m00s", "4m00s"],
        ["1m30s*", "3m00s*"],
        ["1m00s*", "2m00s*"],
        ["", "2m00s*"],
    ]
    assert [row[8:10] for row in rows] == times
    assert mixed.record()["figures"]["seconds"] == {"mean": 240.0, "deviation": None, "count": 1}
    assert mixed.record()["figures"]["bleu"]["count"] == 3
    assert timing([alone]) == []
    assert timing([mixed]) == ["Times are of the seeds that ran alone (seed 2)."]
    star = "* up to 3 processes ran side by side, which makes each slower."
    assert timing([alone, never]) == [star]
    assert timing([alone, mixed, never]) == ["Times are of the seeds that ran alone (two: seed 2).", star]
    assert timing([begun]) == [star.replace("3", "2")]


def test_systems_of_one_title_are_told_apart() -> None:
    named = [("a", "x", "word"), ("b", "x", "word"), ("b", "y", "char"), ("c", "x", "act"), ("c", "y", "act")]
    systems = [RecipeSystem(table, row, title, None, {}) for table, row, title in named]
    assert unique_titles(systems) == ["word (a)", "word (b)", "char", "act (c-x)", "act (c-y)"]
