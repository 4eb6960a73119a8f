"""The grids in recipes/freedom describe runs that can be built, by the commands that stand above them."""

import re
import shlex
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import torch
from helpers import BIGRU, LOOKUP, RECURRENT, make_config

from caesura.components import build_parts
from caesura.config import Config
from caesura.data.vocabulary import CharVocabulary, Vocabulary
from caesura.experiments.provenance import described, digest
from caesura.experiments.sweep_grid import Plan, Point, parse_over, points, read_rows
from caesura.experiments.sweep_results import chosen, load, merge
from caesura.segmenters.base import BaseSegmenter

ROOT = Path(__file__).parents[2]
LONG = {"grid-telling.yaml", "grid-fixed-long.yaml"}  # trained to the end, and scored on the test set


def commands(folder: str) -> list[tuple[str, str]]:
    """The grids of a folder of recipes, each with a command that stands above it."""
    return [
        (path.name, line)
        for path in sorted((ROOT / "recipes" / folder).glob("grid-*.yaml"))
        for line in re.findall(r"^# \$ caesura sweep (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]


COMMANDS = commands("freedom")
TAUS = "-0.5 0 0.001 0.3 0.4 0.45 0.49 0.5 0.505 0.55 0.6 0.7 0.75 0.8 0.85 0.9 1.0 1.5"
SEARCHES = {"grid-act-size.yaml": ("act_size", "25 50 75 100 150"), "grid-tau.yaml": ("tau", TAUS)}


def layer_of(config: Config, size: int, vocabulary: Vocabulary | None = None) -> BaseSegmenter:
    """The segmenter of a config, which is built with a small encoder and decoder."""
    little = make_config(LOOKUP, BIGRU, RECURRENT).model
    parts = {"encoder": little.encoder, "decoder": little.decoder}
    model = config.model.model_copy(update=parts)
    return build_parts(config.model_copy(update={"model": model}), size, 9, vocabulary)[0]


def test_every_grid_has_its_command():
    assert {name for name, _ in COMMANDS} == {p.name for p in (ROOT / "recipes" / "freedom").glob("grid-*")}


def test_segments_in_words_are_as_their_names_say():
    [line] = [line for name, line in COMMANDS if name == "grid-words.yaml"]
    vocabulary, text = CharVocabulary(" abcdefg"), "abcde abcd  abcdefg a"
    symbols = torch.tensor([vocabulary.encode(text)])
    for point in planned("grid-words.yaml", line):
        layer = layer_of(point.config, len(vocabulary), vocabulary)
        ends = layer(symbols, [len(text)]).ends[0].nonzero()[:, 0].tolist()
        if "chosen" in point.name:
            assert layer.learn_halting
            assert {i for i, c in enumerate(text) if c == " "} < {*ends}
        else:
            k = re.match(r"k=(\d+) in ", point.name)
            most = int(k[1]) if k else len(text)
            words = (range(*word.span()) for word in re.finditer("[^ ]* |[^ ]+$", text))
            parts = (word[i : i + most] for word in words for i in range(0, len(word), most))
            assert ends == [part[-1] for part in parts]
            size = re.search(r" of (\d+) ", point.name)
            assert layer.cell.hidden_size == int(size[1] if size else 50)


@pytest.mark.parametrize(("name", "line"), COMMANDS)
def test_every_run_can_be_built(name, line):
    plan = planned(name, line)
    assert len(plan) >= 4
    assert len({point.folder for point in plan}) == len(plan)


@pytest.mark.parametrize(("name", "line"), commands("iwslt14"))
def test_the_papers_searches_have_its_values(name, line):
    option, values = SEARCHES[name]
    plan = planned(name, line)
    layers = [point.config.model.segmenter.model_dump() for point in plan]
    assert [layer[option] for layer in layers] == [float(value) for value in values.split()]


def test_no_run_is_trained_twice():
    runs = {
        (line, point.name): point.config.model_copy(update={"name": ""}).dump()
        for name, line in COMMANDS
        for point in planned(name, line)
        if not point.beside
    }
    assert len({*runs.values()}) == len(runs)


def test_fixed_segments_are_as_long_as_their_names_say():
    grids = [(name, line) for name, line in COMMANDS if name.startswith("grid-fixed")]
    members = {name: planned(name, line) for name, line in grids}
    lengths = [f"k={k} seed=1" for k in (1, 2, 3, 4, 6, 8, 16, 32)]
    assert [point.name for point in members["grid-fixed.yaml"]] == lengths
    symbols = torch.arange(64)[None] % 9
    for point in (point for grid in members.values() for point in grid):
        assert point.config.model.segmenter.tau == 0
        layer = layer_of(point.config, 9)
        k = int(point.name.removeprefix("k=").split()[0])
        segments = layer(symbols, [64])
        assert segments.ends[0].nonzero()[:, 0].tolist() == [*range(k - 1, 63, k), 63]
        first, last = segments.weights[0, 0].item(), segments.weights[0, k - 1].item()
        if size := re.search(r" of (\d+) ", point.name):
            assert layer.cell.hidden_size == int(size[1])
        elif match := re.search(r" of ([\d.]+) and ([\d.]+) ", point.name):
            assert (round(first, 2), round(last, 2)) == (float(match[1]), float(match[2]))
        else:
            assert first == pytest.approx(1 / k, abs=1e-4) == last


@pytest.mark.slow
@pytest.mark.parametrize(("name", "line"), COMMANDS)
def test_published_runs_are_known_by_the_configs_of_today(name, line, tmp_path):
    for part, lang in product(("train", "dev", "test"), ("de", "ja", "en")):
        (tmp_path / f"{part}.{lang}.xz").touch()
    out = Path(parsed(line)[1]["--out"]).name
    published = load(ROOT / "docs" / "results" / "freedom" / f"{out}.json")
    digests = {(run.name, run.digest) for run in published.runs}
    assert digests == {(p.name, digest(described(p.config))) for p in planned(name, line, tmp_path)}


def test_runs_from_before_an_option_are_chosen_by_what_they_would_have_of_it():
    results = ROOT / "docs" / "results" / "freedom"
    merged = merge([load(results / f"{name}.json") for name in ("tau-bias", "fixed")])
    for value, count in (("true", 29), ("false", 8)):
        runs = chosen(merged, [parse_over(f"model.segmenter.learn_halting={value}")])
        assert [run.beside for run in runs.runs] == [False] * count + [True] * 2
    assert not any("learn_halting" in merged.config(run)["model"]["segmenter"] for run in runs.runs[count:])


def test_what_is_compared_is_trained_alike():
    pairs = [(name, point.config) for name, line in COMMANDS for point in planned(name, line)]
    configs = [config for _, config in pairs]  # Japanese too
    parts = [getattr(config.model, part) for config in configs for part in ("encoder", "decoder")]
    assert {part.model_extra["dropout"] for part in parts} == {0.4}
    short = next(config.training for name, config in pairs if name not in LONG)
    length = {"updates": short.updates, "validation_freq": short.validation_freq}
    training = {
        config.training.model_copy(
            update={"normalization": "symbols", "seed": 1} | (length if name in LONG else {})
        ).model_dump_json()
        for name, config in pairs
    }
    assert len(training) == 1


def test_every_command_has_a_folder_of_its_own():
    folders = [options["--out"] for _, line in COMMANDS for _, options in [parsed(line)]]
    assert len({*folders}) == len(folders)


def parsed(line: str) -> tuple[str, dict[str, str]]:
    """The config of a command and its options; of one that is repeated the last."""
    config, *words = shlex.split(line)
    if not any(name in line for name in LONG):
        assert words.pop() == "--no-test"  # the grids are held against each other on dev
    return config, dict(zip(words[::2], words[1::2], strict=True))


@cache
def planned(name: str, line: str, data: Path | None = None) -> list[Point]:
    """The runs of a command, with the text of a folder."""
    config, options = parsed(line)
    assert {*options} <= {"--list", "--beside", "--data", "--gold", "--out", "--parallel", "--seeds"}
    assert Path(options["--list"]).name == name
    beside = [ROOT / path for path in re.findall(r"--beside (\S+)", line)]
    seeds = [int(seed) for seed in options["--seeds"].split(",")] if "--seeds" in options else None
    rows = read_rows(ROOT / options["--list"])
    return points(Plan(ROOT / config, rows, beside=beside, seeds=seeds, data=data))
