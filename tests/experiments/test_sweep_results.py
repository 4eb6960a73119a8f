"""What is kept of a sweep is small, reads back as it was, and merges with what other stints have kept."""

import json
import math
import re
from dataclasses import replace
from itertools import chain, pairwise, takewhile

import pytest
from experiments.made import BIAS, TAU, baseline, grid, result, sweep
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.config import flat
from caesura.errors import InputError
from caesura.experiments.outcome import milliseconds
from caesura.experiments.provenance import new_values
from caesura.experiments.sweep_grid import parse_over
from caesura.experiments.sweep_results import (
    chosen,
    curve,
    distinguished,
    finite,
    load,
    merge,
    save,
    training_curve,
)
from caesura.experiments.sweep_tables import brief_table, groups_table, markdown, runs_table


def test_a_sweep_reads_back_as_it_was(tmp_path):
    failed = result(
        "tau=9", status="failed", reason="it broke", curve={}, best=None, test=None, boundaries={}
    )
    made = sweep([*grid([0.0, 0.1], [1.0], seeds=2), baseline("char", 1.0, 20.0), failed])
    save(made, tmp_path / "sweep.json")
    read = load(tmp_path / "sweep.json")
    assert read == made
    save(read, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "sweep.json").read_bytes()


def test_tens_of_runs_are_small(tmp_path):
    validations = [
        {"sentences": 8000 * i, "seconds": i * 1.23456, "segment_length": 1 + math.sin(i) ** 2}
        | {"live": math.cos(i) ** 2, "bleu": 20 + math.sin(i), "chrf": 40 + math.sin(i)}
        | {"verdict": "wait"}
        for i in range(1, 1000)
    ]  # fmt: skip
    columns, _ = curve({"segment_length": 2.0, "live": 0.5}, validations, ["live"])
    runs = [replace(run, curve=columns) for run in grid([i / 10 for i in range(14)], [0.0, 1.0], seeds=3)]
    save(sweep(runs), tmp_path / "sweep.json")
    assert len(runs) == 84
    assert (tmp_path / "sweep.json").stat().st_size < 1_000_000


@given(st.integers(0, 400), st.integers(4, 60), st.data())
def test_a_thinned_curve_keeps_its_ends_and_the_best(count, most, data):
    validations = [
        {"sentences": i, "segment_length": float(i), "verdict": "wait"} for i in range(1, count + 1)
    ]
    place = data.draw(st.integers(0, count))
    if place:
        validations[place - 1]["verdict"] = "best"
    columns, best = curve({"segment_length": 0.0}, validations, most=most)
    kept = columns["sentences"]
    assert len(kept) == min(count + 1, len(kept)) <= most
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (0, count)
    assert best is None if not place else kept[best] == place
    if count < most:
        assert len(kept) == count + 1


def test_a_run_that_has_not_begun_has_no_curve():
    assert curve(None, []) == ({}, None)
    assert result(curve={}, best=None).last("bleu") is None


def test_a_start_alone_has_no_end():
    columns, best = curve({"segment_length": 2.0}, [])
    run = result(curve=columns, best=best)
    assert (run.first("segment_length"), run.last("segment_length"), run.at_best("bleu")) == (2.0, None, None)


def test_time_of_an_update_leaves_validations_out():
    def line(kind, update, seconds):
        return {"kind": kind, "update": update, "seconds": seconds}

    log = [line("train", 50, 5.0), line("train", 100, 6.0), line("validation", 120, 30.0)]
    log += [line("train", 150, 31.0), line("train", 200, 32.5), line("train", 250, 33.5)]
    assert milliseconds(log) == 20.0  # of 20, 30 and 20; the 25 seconds around the validation are not in it
    assert milliseconds(log[:1]) is None


def test_short_stretches_at_the_start_do_not_tell_how_long_an_update_takes():
    log = [{"kind": "train", "update": u, "seconds": s} for u, s in [(1, 9.0), (20, 9.5), (50, 10.0)]]
    assert milliseconds(log) is None
    assert milliseconds([*log, {"kind": "train", "update": 100, "seconds": 10.5}]) == 10.0


def training_log(count):
    """A training log that tells of segments, a batch of 128 a line."""
    return [{"kind": "train", "sentences": 128 * i, "segment_length": 1 + 1 / i} for i in range(1, count + 1)]


def test_what_training_told_stands_in_the_middle_of_what_it_is_of():
    log = [{"kind": "start", "segment_length": 2.0}, *training_log(3), {"kind": "train", "sentences": 999}]
    assert training_curve(log) == {"sentences": [64, 192, 320], "segment_length": [2.0, 1.5, 1.3333]}
    assert training_curve(log[-1:]) == training_curve([]) == {}


def test_a_run_that_does_not_cut_tells_its_loss_at_the_same_places():
    log = [
        {**line, "cross_entropy": 1 / i, "loss": 2 / i, "penalty": 0.0}
        for i, line in enumerate(training_log(200), 1)
    ]
    bare = [{key: value for key, value in line.items() if key != "segment_length"} for line in log]
    cutting, beside = training_curve(log, ["penalty"]), training_curve(bare)
    assert [*cutting] == ["sentences", "segment_length", "cross_entropy", "loss", "penalty"]
    assert beside == {key: cutting[key] for key in ("sentences", "cross_entropy", "loss")}
    assert cutting["sentences"] == training_curve(training_log(200))["sentences"]
    run = result(training=beside)
    assert run.logged("loss")[:2] == [(64, 2.0), (192, 1.0)]
    assert (run.last_logged("cross_entropy"), run.last_logged("segment_length")) == (0.005, None)


def test_what_training_could_not_tell_is_passed_over():
    run = result(training={"sentences": [1, 2, 3], "loss": [5.0, None, None]})
    assert (run.logged("loss"), run.last_logged("loss"), run.logged("x")) == ([(1, 5.0)], 5.0, [])
    assert result().logged("loss") == []


@given(st.integers(1, 500), st.integers(2, 60))
def test_a_thinned_log_is_densest_at_the_start(count, most):
    columns = training_curve(training_log(count), most=most)
    kept = columns["sentences"]
    assert len(kept) == len(columns["segment_length"]) <= most
    assert kept == sorted(set(kept))
    assert (kept[0], kept[-1]) == (64, 128 * count - 64)
    if count > most >= 20:
        assert kept[1] == 192
        assert max(b / a for a, b in pairwise(kept[1:])) < 2


@pytest.mark.parametrize(
    ("value", "kept"), [(1.234567, 1.2346), (7, 7), (math.nan, None), (None, None), ("x", None)]
)
def test_numbers_are_short(value, kept):
    assert finite(value) == kept


def test_several_stints_are_one_sweep():
    longer = result("tau=0", sentences=50_000)
    shorter = result("tau=0", sentences=24_000, status="stopped")
    other = result("tau=1", settings={TAU: 1.0})
    elsewhere = result("tau=0", config="act-ja", digest="0124")
    for order in ([longer, other], [shorter, elsewhere]), ([shorter, elsewhere], [longer, other]):
        merged = merge([sweep(runs) for runs in order])
        assert {(r.config, r.name): r for r in merged.runs} == {
            ("act", "tau=0 seed=1"): longer,
            ("act", "tau=1 seed=1"): other,
            ("act-ja", "tau=0 seed=1"): elsewhere,
        }
    assert merge([sweep([longer], [TAU]), sweep([other], ["training.seed"])]).over == [TAU, "training.seed"]


def test_runs_are_chosen_by_their_values_and_look_and_are_named_by_those():
    runs = [replace(run, digest=run.name, alike=run.group) for run in grid([0.0, 0.1, 1.0], [-2.0, 1.0])]
    made = sweep([baseline("char", 1.0, 20.0), *runs])
    selection = chosen(made, [parse_over(f"{BIAS}=1,5"), parse_over(f"{TAU}=1,1e-1")])
    assert selection.over == [BIAS, TAU]
    assert [run.group for run in selection.runs] == ["b_h=1 tau=1", "b_h=1 tau=0.1", "char"]
    by_tau = distinguished(chosen(made, [parse_over(f"{TAU}=0")]))
    assert [run.group for run in by_tau.runs] == ["tau=0 b_h=-2", "tau=0 b_h=1", "char"]


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ([f"{TAU}=7"], f"--over {TAU}=7: no run has these values; there are {TAU}=0,0.1"),
        ([f"{TAU}=0", f"{BIAS}=5,6"], f"no run has these values; there are {BIAS}=-2,1"),
        ([f"{TAU}=5", f"{BIAS}=6"], f"there are {TAU}=0,0.1 and {BIAS}=-2,1"),
        ([f"{TAU}=0", f"{BIAS}=1"], "no run has these values together"),
        ([f"{TAU}u=0"], f"no run has the key {TAU}u; did you mean {TAU}?"),
        ([f"{BIAS}=1", "tau=0"], f"no run has the key tau; did you mean {TAU}?"),
        (["b_h=1"], f"no run has the key b_h; did you mean {BIAS}?"),
        (["model.segmenter.zzz=1"], "no run has the key model.segmenter.zzz"),
    ],
)
def test_why_no_run_is_chosen_is_said(over, reason):
    made = sweep([baseline("char", 1.0, 20.0), *grid([0.0], [-2.0]), *grid([0.1], [1.0])])
    with pytest.raises(InputError) as refused:
        chosen(made, [parse_over(text) for text in over])
    assert str(refused.value).endswith(reason)


RATE = "training.learning_rate"


def study(rate, **more):
    """Two seeds of one setting and a baseline, all with a learning rate."""
    facts = {"settings": {TAU: 0.0, RATE: rate}, "base": "b"} | more
    marks = {"alike": f"a{rate}{more}"}
    runs = [result("tau=0", seed, digest=f"{rate}{seed}{more}", **facts, **marks) for seed in (1, 2)]
    char = replace(baseline("char", 1.0, 20.0), digest=f"c{rate}{more}", alike=f"c{rate}{more}")
    return sweep([*runs, replace(char, settings={RATE: rate}, base="b")])


def test_two_studies_are_both_drawn_and_told_apart():
    one, other = study(0.1), study(0.2)
    merged = merge([one, other])
    assert merged.runs == [*one.runs, *other.runs]
    named = distinguished(merged)
    assert [run.name for run in named.runs[:3]] == [
        *("tau=0 learning_rate=0.1 seed=1", "tau=0 learning_rate=0.1 seed=2", "char learning_rate=0.1 seed=1")
    ]
    rows = groups_table(named).rows
    assert [row[:2] for row in rows] == [
        *(["tau=0 learning_rate=0.1", 2], ["tau=0 learning_rate=0.2", 2]),
        *(["char learning_rate=0.1", 1], ["char learning_rate=0.2", 1]),
    ]
    assert distinguished(one) == one
    assert len(groups_table(merged).rows) == 4  # under any names


def test_studies_of_other_configs_are_told_by_those_and_unknown_ones_by_their_digests():
    ja = study(0.1, config="act-ja")
    names = [run.group for run in distinguished(merge([study(0.1), ja])).runs]
    assert names[:2] + names[3:5] == ["tau=0 act"] * 2 + ["tau=0 act-ja"] * 2
    old = [result("tau=0", seed, digest=f"{seed}{mark}") for mark in "ab" for seed in (1, 2)]
    assert [run.name for run in distinguished(sweep(old)).runs] == [
        *("tau=0 1a seed=1", "tau=0 2a seed=2", "tau=0 1b seed=1", "tau=0 2b seed=2")
    ]
    assert distinguished(sweep(old[:2])) == sweep(old[:2])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: act\n",
        "[]",
        "{}",
        '{"format": 3, "runs": []}',
        '{"format": 1, "runs": [{"name": 1}]}',
        '{"format": 1, "runs": []}',
    ],
)
def test_another_file_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with refuses(InputError, f"{path}: "):
        load(path)
    with refuses(InputError, f"{tmp_path}/y.json: "):
        load(tmp_path / "y.json")


def test_a_value_that_a_run_does_not_set_is_that_of_what_it_is_laid_over():
    run = result(settings={BIAS: 2.0}, base="77")
    made = replace(sweep([run]), configs={"77": {"model": {"segmenter": {"tau": 0.7, "halting_bias": 1.0}}}})
    assert (made.value(run, TAU), made.value(run, BIAS), made.value(run, "a.b")) == (0.7, 2.0, None)
    assert made.value(run, "model.segmenter") == {"tau": 0.7, "halting_bias": 2.0}
    assert made.value(replace(baseline("act", 1.0, 2.0), base="77"), TAU) is None


def test_what_an_earlier_file_does_not_say_of_a_run_is_not_known(tmp_path):
    run = result(settings={BIAS: 2.0})
    first = {"act": {"model": {"segmenter": {"tau": 0.7}}}}  # the config of some run
    save(replace(sweep([run]), configs=first), tmp_path / "x.json")
    text = (tmp_path / "x.json").read_text().replace('"format": 2', '"format": 1')
    (tmp_path / "x.json").write_text(text)
    read = load(tmp_path / "x.json")
    assert (read.value(run, TAU), read.value(run, BIAS)) == (None, 2.0)


TREES = st.recursive(
    st.none() | st.integers(0, 2) | st.lists(st.integers(0, 1), max_size=2),
    lambda values: st.dictionaries(st.sampled_from("abc"), values, min_size=1, max_size=3),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


@given(TREES, TREES)
def test_a_config_is_its_base_and_what_differs(base, tree):
    run = result(settings=new_values(base, tree), base="0")
    again = replace(sweep([run]), configs={"0": base}).config(run)
    again.pop("training")
    values = {key: value for key, value in flat(again).items() if value is not None}
    assert values == {key: value for key, value in flat(tree).items() if value is not None}


def test_the_table_has_a_row_a_run_and_says_what_stopped_it():
    failed = result("tau=9", status="failed", reason="a | b", curve={}, best=None, test=None, boundaries={})
    made = sweep(
        [baseline("char", 1.0, 20.0), result(), failed, result("x", status="finished", reason="3 epochs")]
    )
    table = runs_table(made)
    rows = {row[0]: dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows}
    assert [*rows] == ["tau=0.1 b_h=1 seed=1", "tau=9 seed=1", "x seed=1", "char seed=1"]
    run = rows["tau=0.1 b_h=1 seed=1"]
    assert (run["segments: start"], run["segments: best"], run["segments: end"]) == (2.0, 1.2, 1.1)
    assert (run["dev BLEU: best"], run["dev BLEU: end"], run["test BLEU"]) == (9.0, 8.0, 8.5)
    assert (run["F1 white space"], run["by chance, white space"], run["coordination"]) == (0.33, 0.3, 0.67)
    assert rows["tau=9 seed=1"]["ended"] == "failed: a | b"
    assert rows["x seed=1"]["ended"] == "3 epochs"
    assert "output: end" not in rows["x seed=1"]
    assert (rows["char seed=1"]["cross-entropy: end"], run["cross-entropy: end"]) == (1.0, None)
    text = markdown(made)
    assert "a \\| b" in text
    assert "BLEU|nrefs:1" in text
    parts = [part.splitlines()[2:] for part in text.split("\n\n**")[1:]]
    assert [lines[0].split(" | ")[0] for lines in parts] == ["| run"] * 5
    for lines in parts:
        rows = [*takewhile(lambda line: line.startswith("|"), lines)]
        assert len(rows) == 2 + 4
        assert len({row.replace("\\|", "").count("|") for row in rows}) == 1


def test_every_column_is_in_one_part_of_the_markdown():
    fields = "segment_length", "longest_segment", "live"
    output = {f"output_{name}": [2.0] * 4 for name in ("segment_length", "live")}
    run = result()
    curve = {name: [2.0] * 4 for name in fields} | output | {"longest_output_segment": [3.0] * 4} | run.curve
    both = {"overhead": 1.1, "coordination": 0.5}
    made = sweep([replace(run, curve=curve, coordination={"source": both, "target": both}), result(seed=2)])
    heads = [line for line in markdown(made).splitlines() if line.startswith(("| run |", "| setting |"))]
    for table, names in ((runs_table(made), 1), (groups_table(made), 2)):
        fixed = [c.name for c in table.columns[:names]]
        start = f"| {' | '.join(fixed)} | "
        columns = [head.removeprefix(start)[:-2].split(" | ") for head in heads if head.startswith(start)]
        assert sorted(chain.from_iterable(columns)) == sorted(c.name for c in table.columns[names:])
        assert max(map(len, columns)) <= 6
        assert len(table.columns) > 20


def test_a_terminal_has_the_ends_the_best_and_what_stopped_it():
    either = {"gold": 90, "f1": 0.66, "chance": 0.3}
    first = result()
    first = replace(first, boundaries=first.boundaries | {"white space, either side": either})
    title, heads, rows, _ = brief_table(sweep([first, baseline("char", 1.0, 20.0)]))
    assert title.startswith("2 runs, ")
    run, char = (dict(zip(heads, row, strict=True)) for row in rows)
    assert run == {
        "run": "tau=0.1 b_h=1 seed=1", "start": "2.000", "end": "1.100", "live": "10.00%", "BLEU": "9.00",
        "chrF2": "30.00", "test": "8.50", "F1": "0.330", "either": "0.660", "ms": "10.0",
        "ended": "budget spent",
    }  # fmt: skip
    assert (char["live"], char["end"]) == ("", "1.000")


def test_the_length_that_was_asked_for_is_beside_those_that_came_out():
    made = result()
    asked = replace(made, curve=made.curve | {"target_length": [None, 4.0, 4.0, 4.0]})
    _, heads, rows, legend = brief_table(sweep([made, asked]))
    at = heads.index("asked")
    assert (heads[at - 1], [row[at] for row in rows]) == ("end", ["", "4"])
    assert legend.startswith("start, end, asked: characters in a segment; ")
    assert "segments: asked" in markdown(sweep([asked])).partition("**Scores**")[0]
    start = {"segment_length": 3.0, "target_length": 4.0}
    assert curve(start, [start | {"sentences": 8, "verdict": "best"}])[0]["target_length"] == [4.0, 4.0]


def test_a_terminal_explains_the_columns_that_are_there_and_no_others():
    made = result()
    bare = replace(made, test=None, boundaries={}, milliseconds=None)
    assert brief_table(sweep([bare]))[3] == (
        "start, end: characters in a segment; "
        "live: share of characters at which the loss reaches the cutter, at the end; "
        "BLEU, chrF2: best on dev. All else: table.md"
    )
    none = replace(bare, curve={}, best=None)
    assert brief_table(sweep([none]))[3] == "All else: table.md"
    outputs = {f"output_{name}": [2.0] * 4 for name in ("segment_length", "live")}
    sides = {name: {"gold": 90, "f1": 0.5} for name in ("white space", "white space, either side")}
    full = replace(made, curve=made.curve | outputs, boundaries=sides)
    _, heads, _, legend = brief_table(sweep([full]))
    explained = [
        head for part in legend.split("; ") for head in re.split(r": (?!start|end|live)", part)[0].split(", ")
    ]
    assert explained == [head for head in heads if head not in ("run", "ended")]
    assert "F1: against white space, which goes with the word after it; either: with either word;" in legend


@pytest.mark.parametrize(
    ("whole", "budgets", "title"),
    [
        (90.0, [None, None, None], "3 runs, 1m30s of training each, up"),  # kept by an earlier version
        (10.0, [25.0, 25.0, 10.0], "3 runs, budgets of 10s to 25s each, up"),
        (None, [25.0, 25.0, 10.0], "3 runs, budgets of 10s to 25s each, up"),
        (10.0, [25.0, 25.0, 25.0], "3 runs, 25s of training each, up"),
        (None, [25.0, None, None], "3 runs, with a budget of 25s where they had one, up"),
        (None, [25.0, None, 10.0], "3 runs, with budgets of 10s to 25s where they had one, up"),
        (None, [None, None, None], "3 runs, up"),
    ],
)
def test_the_heading_has_the_budgets_that_the_runs_had(whole, budgets, title):
    runs = [result("tau=0"), result("tau=1"), baseline("char", 1.0, 20.0)]
    runs = [replace(run, budget=budget) for run, budget in zip(runs, budgets, strict=True)]
    made = replace(sweep(runs), budget=whole)
    assert runs_table(made).title.startswith(title)
    assert f"## {title}" in markdown(made)


def test_a_handful_of_gold_boundaries_is_no_column():
    few = {"gold": {"gold": 29, "f1": 0.5, "chance": 0.1}, "words": {"gold": 30, "f1": 0.5, "chance": 0.1}}
    heads = [column.name for column in runs_table(sweep([result(boundaries=few)])).columns]
    assert "F1 gold" not in heads
    assert {"F1 words", "by chance, words"} <= {*heads}


def test_seeds_are_one_row_with_mean_and_spread():
    def scored(seed, bleu):
        run = result(seed=seed)
        return replace(run, curve=run.curve | {"bleu": [None, 1.0, bleu, 1.0]})

    none = replace(result(seed=4), best=None, curve={}, status="failed")
    made = sweep([scored(1, 10.0), scored(2, 12.0), scored(3, 14.0), none, result("tau=1")])
    table = groups_table(made)
    heads = [c.name for c in table.columns]
    assert [row[0] for row in table.rows] == ["tau=0.1 b_h=1", "tau=1"]
    assert table.rows[0][heads.index("seeds")] == 3
    assert table.rows[0][heads.index("dev BLEU: best")] == "12.00 ± 2.00"
    assert table.rows[1][heads.index("dev BLEU: best")] == "9.00"
    assert "Mean ± standard deviation" in markdown(made)
    assert "Mean ± standard deviation" not in markdown(sweep([result()]))


def test_csv_is_in_full_precision():
    made = sweep([replace(result(), milliseconds=12.3456)])
    assert "12.3456" in runs_table(made).csv()
    assert json.dumps(made.runs[0].name)[1:-1] in runs_table(made).csv()
