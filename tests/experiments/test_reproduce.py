"""`caesura reproduce` on small models: tables from whatever there is, going on, and what it refuses."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from cli.program import AT_ONCE, caesura, command, refusal
from experiments.fleets import interrupt_once, wait_for
from experiments.recipes import RECIPE, rows, run, statuses
from wording import wording

from caesura.config import load_config
from caesura.experiments.outcome import TEST, Member, read_outcome
from caesura.experiments.recipe import FILE, Chosen, load_recipe, systems
from caesura.experiments.result_tables import fallen
from caesura.experiments.results import SystemResult, compact_metrics
from caesura.terminal import FleetDisplay
from caesura.training.journal import read_records
from caesura.training.lock import is_held

ROOT = Path(__file__).parents[2]
PUBLISHED = ("table.md", "table.json", "table.csv", "curves.png", "metrics", "cards")  # without models


def without_times(row: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if "seconds" not in name and name != "side_by_side"}


def test_every_system_is_trained_and_the_papers_row_is_beneath(recipe: Path) -> None:
    done = run(recipe, "--parallel", 2, "--set", "data.max_chars=26")  # which 57 of 60 pairs keep
    assert (done.status, done.err) == (0, "")
    assert [*statuses(recipe).values()] == ["finished"] * 4
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    word = next(i for i, line in enumerate(lines) if line.startswith("| word "))
    assert re.match(
        r"\| word \| 1 \| \d+\.\d\d \| \d+\.\d\d \| \d+\.\d\d \| [\d,]+ \| 57 \| \d\.\d\d \(\d+\) ",
        lines[word],
    )
    assert lines[word].endswith("| 12 updates |")
    assert lines[word + 1].startswith(
        "| the paper's 30k words |  | 22.11 | 44 |  | 80.5M |  | 4.66 (30) |  | 23h |"
    )
    [characters] = [line for line in lines if line.startswith("| characters ")]
    assert re.match(r"\| characters \| 2 \| \d+\.\d\d ± \d+\.\d\d \|", characters)
    assert text.count("- The training text has 60 pairs, 50% of the paper's 120, of which each system") == 4
    assert text.count("\n- `BLEU|nrefs:1|") == 2
    assert text.count("\n- `chrF2|nrefs:1|case:mixed|eff:yes|nc:2|") == 2
    assert "side by side" in text
    assert re.search(r"\| train \| 60 \| [\d.]+ \| \d+ \| [\d.]+ \| \d+ \| 120 \|", text)
    assert "Made by `caesura reproduce numbers --data data --out out --no-report --parallel 2 --set " in text
    content = json.loads((recipe.parent / "out" / "table.json").read_bytes())
    assert content["tables"]["first"][1]["figures"]["bleu"]["count"] == 2
    assert content["tables"]["first"][1]["figures"]["chrf_bigram"]["mean"] > 0
    out = recipe.parent / "out"
    for path in (path for path in out.rglob("*") if path.relative_to(out).parts[0] in PUBLISHED):
        assert path.is_dir() or str(recipe.parent).encode() not in path.read_bytes(), path
    assert "The first table" in done.out
    assert "The tables: " in done.out
    paper = [row for row in rows(recipe) if row["by"] == "paper"]
    assert [(row["bleu"], row["chrf"], row["training_time"]) for row in paper] == [("22.11", "44.0", "23h")]


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_without_a_test_set_the_trained_seeds_and_their_dev_scores_are_shown(recipe: Path) -> None:
    out = recipe.parent / "out"
    done = caesura("reproduce", recipe, "--out", out, "--no-report", "--only", "first")
    assert (done.status, done.err) == (0, "")
    why = "no data.test in the config of word, characters"
    assert done.lines[0] == f"{why}: scored on dev alone, and a later call cannot add it"
    text = (out / "table.md").read_text(encoding="utf-8")
    assert re.search(r"^\| word \| 1 \|  \|  \| \d+\.\d\d \|", text, re.M)
    assert re.search(r"^\| characters \| 2 \|  \|  \| \d+\.\d\d ± \d+\.\d\d \|", text, re.M)
    shown = "\n- Scored on dev alone (not tested yet, or no data.test in the config): word, characters.\n"
    assert text.count(shown) == 1
    assert not run(recipe, "--only", "act").out.startswith("no data.test"), "--data has one"
    assert (out / "table.md").read_text(encoding="utf-8").count("dev alone") == text.count("dev alone")


def test_again_nothing_is_trained_and_the_tables_stay(recipe: Path) -> None:
    run(recipe, "--only", "second")
    before = rows(recipe)
    log = (recipe.parent / "out" / "second-act-1.log").read_bytes()
    assert run(recipe, "--only", "second").status == 0
    assert rows(recipe) == before
    assert (recipe.parent / "out" / "second-act-1.log").read_bytes() == log


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_only_trains_what_it_names_and_the_table_keeps_what_is_there(recipe: Path) -> None:
    run(recipe, "--only", "second, first-word")
    assert [*statuses(recipe)] == ["first-word-1", "second-act-1"]
    run(recipe, "--only", "char", "--seeds", "5")
    assert [*statuses(recipe)] == ["first-word-1", "first-char-5", "second-act-1"]
    assert wording(refusal(run(recipe, "--only", "chars,act"))).startswith("--only chars: ")


def test_what_was_kept_stands_for_folders_that_are_gone(recipe: Path) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "act,word", "--budget", "40s")
    before, content = rows(recipe), json.loads((out / "table.json").read_bytes())
    logs = {path: path.read_bytes() for path in out.glob("metrics/*")}
    read = (out / "table.md").read_text().partition("## What each system reads")[2].partition("\n- ")[0]
    assert re.search(r"\| first-word \| .* \| \d+\.\d \| \d+\.\d \| \d+ \|", read)
    for path in [*out.glob("*-*-1"), *out.glob("*-*-1.*")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = run(recipe, "--only", "act, char", "--seeds", "1", "--time-limit", AT_ONCE)
    assert (
        "second-act-1: its checkpoints are gone, metrics/second-act-1.jsonl has it: not trained" in done.out
    )
    assert not (out / "second-act-1").exists()
    assert read in (out / "table.md").read_text()
    after = [row for row in rows(recipe) if row["system"] != "char"]
    assert [*map(without_times, after)] == [*map(without_times, before)]
    assert {path: path.read_bytes() for path in logs} == logs
    again = json.loads((out / "table.json").read_bytes())["tables"]
    assert again["second"] == [
        system | {"figures": again["second"][0]["figures"]} for system in content["tables"]["second"]
    ]
    message = wording(refusal(run(recipe, "--only", "act", "--set", "training.updates=11")))
    assert message.startswith(f"{out}/metrics/second-act-1.jsonl: ")
    assert "(training.updates: 10 -> 11)" in message
    config = (recipe / "act.yaml").read_text(encoding="utf-8")
    (recipe / "act.yaml").write_text(config.replace("learning_rate: ", "learning_rate: 1"), encoding="utf-8")
    assert "(training.learning_rate: 0.01 -> 0.11)" in refusal(run(recipe, "--only", "act"))
    log = out / "metrics" / "second-act-1.jsonl"
    *way, end = log.read_text(encoding="utf-8").splitlines(keepends=True)
    earlier = json.dumps({key: value for key, value in json.loads(end).items() if key != "config"})
    log.write_text("".join(way) + earlier, encoding="utf-8")
    assert "(act.yaml itself has changed)" in refusal(run(recipe, "--only", "act"))
    (recipe / "act.yaml").write_text(config, encoding="utf-8")
    assert "(training.updates: 10 -> 11)" in refusal(
        run(recipe, "--only", "act", "--set", "training.updates=11")
    )
    kept = out / "metrics" / "first-word-1.jsonl"
    kept.write_bytes(kept.read_bytes()[:-100])
    table = (out / "table.md").read_bytes()
    assert refusal(run(recipe, "--only", "act")).startswith(f"{kept}: is not whole (")
    assert (out / "table.md").read_bytes() == table


def test_one_that_fails_is_in_the_table_with_its_reason(recipe: Path) -> None:
    bad = "      bad: {config: word.yaml, settings: [training.learning_rate=1e30, training.max_skipped=1]}\n"
    (recipe / FILE).write_text(RECIPE + bad, encoding="utf-8")
    done = run(recipe, "--only", "second")
    assert (done.status, done.err) == (1, "")
    assert statuses(recipe) == {"second-act-1": "finished", "second-bad-1": "failed"}
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    assert re.search(r"\| bad \| 0 \| .*\| failed: the (loss|gradient|weights).* \|\n", text)


def test_a_table_of_what_is_there_when_time_is_up(recipe: Path) -> None:
    done = run(recipe, "--only", "second,first-word", "--time-limit", AT_ONCE)
    assert done.status == 0
    assert "stopped by the time limit; the same command goes on from here" in done.out
    assert {*statuses(recipe).values()} <= {"not run", "stopped"}
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    assert re.search(r"\| act \| 0 \|  \|  \|  \|  \|  \|  \|  \|  \| not run \|", text)
    assert run(recipe, "--only", "second").status == 0
    assert statuses(recipe)["second-act-1"] == "finished"


def test_a_budget_is_shared_by_all_and_said(recipe: Path) -> None:
    endless = ("--set", "training.updates=100000000", "--only", "second")
    assert run(recipe, *endless, "--budget", "0.5s").status == 0
    assert statuses(recipe) == {"second-act-1": "budget"}
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    assert "Each was given 0s of training" in text or "Each was given 1s of training" in text
    assert "| its budget" in text
    assert 0.5 <= float(rows(recipe)[0]["seconds"]) < 5


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_budget_is_that_of_the_row_which_was_given_it(recipe: Path) -> None:
    endless = ("--set", "training.updates=100000000")
    run(recipe, *endless, "--only", "char", "--seeds", "1", "--budget", "0.3s")
    before = rows(recipe)
    run(recipe, *endless, "--only", "word", "--budget", "1.7s")
    assert statuses(recipe) == {"first-word-1": "budget", "first-char-1": "budget"}
    assert [row for row in rows(recipe) if row["system"] == "char"] == before
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    assert re.search(r"^\| word .* \| 2s \|$", text, re.M)
    assert re.search(r"^\| characters .* \| 0s \|$", text, re.M)
    assert "Each was given its budget of training" in text


@pytest.mark.usefixtures("no_ignored_signals")
def test_ctrl_c_leaves_a_table(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FleetDisplay, "validation", staticmethod(interrupt_once(signal.SIGINT)))
    done = run(recipe, "--set", "training.updates=100000000", "--only", "act")
    assert (done.status, done.err) == (130, "")
    assert done.out.endswith("stopped; the same command goes on from here\n")
    assert statuses(recipe) == {"second-act-1": "stopped"}
    assert (recipe.parent / "out" / "curves.png").exists()
    assert "not done yet" in (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("change", "budget", "lacking"),
    [
        ({}, "1h", ""),
        ({"status": "budget", "budget": 30.0}, "30s", ""),
        ({"status": "budget", "budget": 30.0}, "31s", "the larger budget"),
        ({"status": "budget", "budget": 30.0, "measured": {}}, None, "its test"),
        ({"measured": {}}, "1h", "its test"),
    ],
)
def test_what_was_kept_without_its_test_or_for_less_is_trained_again(
    recipe: Path, change: dict[str, object], budget: str | None, lacking: str
) -> None:
    out = recipe.parent / "out"
    words = ("--only", "word", *(("--budget", budget) if budget else ()))
    run(recipe, *words)
    kept = out / "metrics" / "first-word-1.jsonl"
    *way, end = kept.read_text().splitlines(keepends=True)
    kept.write_text("".join(way) + json.dumps(json.loads(end) | change) + "\n")
    for path in out.glob("first-word-1*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (out / "first-word-1.failed").write_text("no room")  # a try that came to nothing
    before = kept.read_bytes()
    done = run(recipe, *words)
    assert done.status == 0
    what = f" without {lacking}: trained again" if lacking else ": not trained again"
    assert f"first-word-1: its checkpoints are gone, metrics/first-word-1.jsonl has it{what}" in done.out
    assert (kept.read_bytes() != before) == (out / "first-word-1").exists() == bool(lacking)
    if lacking:
        facts = json.loads(kept.read_text().splitlines()[-1])
        assert facts["status"] == "finished"
        assert facts["measured"]["test"]
        assert facts["budget"] == {None: 30.0, "31s": 31.0, "1h": 3600.0}[budget]


def test_a_log_stays_until_what_is_trained_again_is_through_or_as_far(recipe: Path) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "word")
    kept, folder = out / "metrics" / "first-word-1.jsonl", out / "first-word-1"
    whole, tested = kept.read_bytes(), (folder / "test.json").read_bytes()
    *way, end = kept.read_text().splitlines(keepends=True)

    def shown(updates: int) -> str:
        kept.write_text("".join(way) + json.dumps(json.loads(end) | {"updates": updates}) + "\n")
        run(recipe, "--only", "act", "--time-limit", AT_ONCE)
        return next(row["updates"] for row in rows(recipe) if (row["system"], row["by"]) == ("word", "ours"))

    (folder / "test.json").unlink()
    assert shown(1000) == "1000"
    assert json.loads(kept.read_text().splitlines()[-1])["updates"] == 1000
    assert shown(11) == "12"
    (folder / "test.json").write_bytes(tested)
    assert shown(1000) == "12"
    assert kept.read_bytes() == whole


def test_a_tested_result_stays_when_its_weights_are_damaged(recipe: Path) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "word")
    before, log = rows(recipe), (out / "metrics" / "first-word-1.jsonl").read_bytes()
    os.truncate(out / "first-word-1" / "model.safetensors", 5000)
    done = run(recipe, "--only", "word")
    assert done.status == 1
    assert re.search(r"first-word-1: failed: .*model.safetensors: damaged", done.out)
    assert [*map(without_times, rows(recipe))] == [*map(without_times, before)]
    assert (out / "metrics" / "first-word-1.jsonl").read_bytes() == log


@pytest.mark.parametrize(("last", "shown"), [(30.0, False), (26.9, True)])
def test_one_that_ends_below_its_best_is_told(recipe: Path, last: float, shown: bool) -> None:
    (system,) = systems(load_recipe(recipe / FILE), Chosen(recipe.parent, only=("act",)))
    outcome = read_outcome(system.members[1])
    best = {"verdict": "best", "bleu": 30.0, "segment_length": 1.03}
    end = {"verdict": "wait", "bleu": last, "segment_length": 35.2}
    outcomes = {
        1: replace(outcome, validations=[best, end]),
        2: replace(outcome, validations=[best]),
        3: outcome,
    }
    ends = "act, seed 1, ended at 26.90 BLEU on dev and segments of 35.20"
    line = f"{ends}; 30.00 and 1.03 at its best, which is shown."
    assert fallen([SystemResult(system, outcomes)]) == ([line] if shown else [])


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_seeds_that_are_not_tested_are_told(recipe: Path) -> None:
    out = recipe.parent / "out"
    run(recipe, "--only", "char")
    (out / "first-char-2" / "test.json").unlink()
    (out / "metrics" / "first-char-2.jsonl").unlink()
    run(recipe, "--only", "act", "--time-limit", AT_ONCE)
    line = "characters: without seed 2, which is not tested yet."
    assert line in (out / "table.md").read_text(encoding="utf-8")
    run(recipe, "--only", "char")
    assert line not in (out / "table.md").read_text(encoding="utf-8")


def test_logs_are_kept_short_and_whole_in_what_counts(recipe: Path) -> None:
    run(recipe, "--only", "act")
    out = recipe.parent / "out"
    kept = [json.loads(line) for line in (out / "metrics" / "second-act-1.jsonl").read_text().splitlines()]
    kinds = [record["kind"] for record in kept]
    assert kinds == ["start", "kernels", *["train"] * 4, "validation", "end"]
    assert kept[-1]["measured"]["test"]["scores"]["signatures"]
    log = out / "second-act-1" / "metrics.jsonl"
    start, kernels, *_, validation = log.read_text(encoding="utf-8").splitlines()
    assert json.loads(validation)["examples"]
    lines = [start, kernels]
    for update in range(50, 100_000, 50):
        lines.append(json.dumps({"kind": "train", "update": update, "loss": update / 7, "tau": None}))
        lines += [validation] * (update % 2000 == 0)
    log.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    member = Member("second-act-1", recipe / "act.yaml", (), out / "second-act-1")
    text = compact_metrics(read_outcome(member, measures=[TEST]))
    records = [json.loads(line) for line in text.splitlines()]
    kinds = [record["kind"] for record in records]
    assert 25_000 < len(text.encode()) <= 30_000
    assert (kinds[0], kinds[-1], kinds.count("validation")) == ("start", "end", 49)
    assert not any("examples" in record for record in records)
    updates = [record["update"] for record in records if record["kind"] == "train"]
    assert len(updates) > 20
    assert len({b - a for a, b in pairwise(updates)}) == 1


@pytest.mark.soak
def test_kills_of_a_member_and_of_the_whole_change_nothing_but_times(recipe: Path) -> None:
    settings = ("--only", "act", "--set", "training.updates=400", "--no-report")
    tables = []
    for name in ("whole", "out"):
        out = recipe.parent / name
        again = command("reproduce", recipe, "--data", recipe / "data", *settings, "--out", out)
        for victim in ("member", "parent") if name == "out" else ():
            parent = subprocess.Popen(again, stdout=subprocess.DEVNULL)
            training = out / "second-act-1"
            wait_for(lambda training=training: is_held(training) and seconds(training) > 0)
            holder = json.loads((training / ".lock").read_text())["pid"]
            os.kill(parent.pid if victim == "parent" else holder, signal.SIGKILL)
            assert parent.wait(120) == (-signal.SIGKILL if victim == "parent" else 1)
        subprocess.run(again, check=True, stdout=subprocess.DEVNULL)
        with (out / "table.csv").open(encoding="utf-8", newline="") as file:
            tables.append([without_times(row) for row in csv.DictReader(file)])
    assert tables[0] == tables[1]


def seconds(folder: Path) -> float:
    """Of training, as far as the log tells."""
    return max((record.get("seconds", 0.0) for record in read_records(folder)), default=0.0)


def test_data_says_what_is_missing(recipe: Path) -> None:
    (recipe / "data" / "dev.en").unlink()
    assert wording(refusal(run(recipe))).startswith(f"--data {recipe}/data: no dev.en ")
    assert not (recipe.parent / "out").exists()


def test_text_that_is_missing_may_be_given_by_data(recipe: Path) -> None:
    (recipe / "data" / "dev.en").unlink()
    message = wording(refusal(caesura("reproduce", recipe, "--out", recipe.parent / "out", "--no-report")))
    assert "data.dev.trg: " in message
    assert "--data FOLDER" in message


WORD, CHAR, ACT = (f"tables.{row}" for row in ("first.rows.word", "first.rows.char", "second.rows.act"))
MISTAKES = [
    ("title: Numbers", "titel: Numbers", "1: titel"),
    ("config: char.yaml", "config: chars.yaml", f"11: {CHAR}.config"),
    ("bleu: 22.11", "blue: 22.11", f"10: {WORD}.paper.blue"),
    ("chrf: 0.44", "chrf: 44", f"10: {WORD}.paper.chrf"),
    ("seeds: [1, 2]", "seeds: [1, x]", f"11: {CHAR}.seeds.1"),
    ("seeds: [1, 2]", "seeds: []", f"11: {CHAR}.seeds"),
    ("act: {config", "$act: {config", "16: tables.second.rows.$act"),
    ("      act: {config: act.yaml}", "      act: {}", f"16: {ACT}.config"),
    ("training.updates=10]", "training.updats=10]", f"16: {ACT}"),
    ("    rows:\n      act: {config: act.yaml}\n", "", "12: tables.second.rows"),
]


@pytest.mark.parametrize(("old", "new", "place"), MISTAKES)
def test_a_mistake_is_named_with_its_line(recipe: Path, old: str, new: str, place: str) -> None:
    assert old in RECIPE
    (recipe / FILE).write_text(RECIPE.replace(old, new), encoding="utf-8")
    assert wording(refusal(run(recipe))).startswith(f"{recipe}/{FILE}:{place}: ")


@pytest.mark.parametrize("option", ["--budget", "--time-limit"])
def test_times_are_read_or_refused(recipe: Path, option: str) -> None:
    assert wording(refusal(run(recipe, option, "soon"))).startswith(f"{option} soon: ")


def test_an_unknown_recipe_lists_the_known_ones(tmp_path: Path) -> None:
    message = wording(refusal(caesura("reproduce", "iwslt15", "--out", tmp_path / "out")))
    assert message.startswith("iwslt15: ")
    assert all(name in message for name in ("iwslt14", "multi30k", "reading", FILE))


@pytest.mark.parametrize(
    "path",
    [ROOT / "recipes" / name / FILE for name in ("iwslt14", "multi30k")],
    ids=lambda path: path.parent.name,
)
def test_the_recipes_of_the_paper_have_their_configs_and_rows(path: Path) -> None:
    recipe = load_recipe(path)
    used = {path.parent / row.config for rows in recipe.tables.values() for row in rows.rows.values()}
    for config in used:
        assert load_config(config).data.test is not None
    assert {file.stem for file in used} >= {"word", "bpe", "char", "act"}
    if path.parent.name == "iwslt14":
        assert {*(path.parent / "small").glob("*.yaml")} - {path.parent / "small" / "base.yaml"} <= used
        assert all(row.paper for row in recipe.tables["printed"].rows.values())


def test_the_small_recipes_share_everything_but_the_system() -> None:
    small = ROOT / "recipes" / "iwslt14" / "small"
    base = load_config(small / "base.yaml")
    for path in small.glob("*.yaml"):
        config = load_config(path)
        assert (config.training, config.testing) == (base.training, base.testing), path
        assert config.data.max_chars == base.data.max_chars == 350
        assert config.data.src.max_length is config.data.trg.max_length is None
        for part in ("encoder", "decoder"):
            dropout, shared = (getattr(c.model, part).options["dropout"] for c in (config, base))
            assert dropout == shared > 0


def test_tables_of_several_texts_take_each_theirs_from_one_folder(recipe: Path) -> None:
    (recipe / "texts").mkdir()
    for name in ("one", "two"):
        shutil.copytree(recipe / "data", recipe / "texts" / name)
    train = [recipe / "texts" / "two" / f"train.{side}" for side in ("de", "en")]
    for file in train:
        file.write_text("".join(file.read_text().splitlines(keepends=True)[:40]))
    content = RECIPE.replace("    title: The first", "    text: one\n    title: The first")
    content = content.replace("    title: The second", "    text: two\n    title: The second")
    (recipe / FILE).write_text(content.replace("{train: 120", "{name: Figures, train: 120"), "utf-8")
    options = ("--out", recipe.parent / "out", "--data", recipe / "texts", "--no-report")
    assert caesura("reproduce", recipe, *options, "--only", "word").status == 0
    assert caesura("reproduce", recipe, *options, "--only", "act").status == 0
    made = json.loads((recipe.parent / "out" / "table.json").read_bytes())
    counted = [(split["text"], split["name"], split["sentences"]) for split in made["text"]]
    assert [row for row in counted if row[1] == "train"] == [("one", "train", 60), ("two", "train", 40)]
    text = (recipe.parent / "out" / "table.md").read_text(encoding="utf-8")
    first, second = text[text.index("## The first") :].split("## The second")
    assert "The paper's text is Figures (120 pairs), ours is one (60 pairs): " in first
    assert "ours is two (40 pairs)" not in first
    assert "ours is two (40 pairs)" in second.split("\n## ")[0]
    pairs = {row["system"]: row["pairs"] for row in rows(recipe) if row["by"] == "ours"}
    assert pairs == {"word": "60", "act": "40"}
    shutil.rmtree(recipe / "texts" / "two")
    message = refusal(caesura("reproduce", recipe, *options))
    assert str(recipe / "texts" / "two") in message
