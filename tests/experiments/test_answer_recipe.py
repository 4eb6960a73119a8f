"""recipes/answer: every row can be built, is trained as all others, and has the length of its name."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch

from caesura.components import build_parts
from caesura.config import Config, EntropyCuts, FileCuts
from caesura.experiments.recipe import FILE, Chosen, load_recipe, systems
from caesura.schedules import Schedule
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.parts import Segmenter

RECIPE = load_recipe(Path(__file__).parents[2] / "recipes" / "answer" / FILE)
SYSTEMS = {system.name: system for system in systems(RECIPE, Chosen(Path("out"), seeds=(1,)))}


@cache
def config(name: str) -> Config:
    return SYSTEMS[name].members[1].load()


@cache
def segmenter(name: str) -> BaseSegmenter:
    with torch.device("meta"):
        return build_parts(config(name), 99, 81)[0]


def test_its_tables_and_measures() -> None:
    assert [measure.name for measure in RECIPE.wanted()] == ["test", "cuts", "robust"]
    seeds = {name: table.seeds for name, table in RECIPE.tables.items()}
    assert seeds == {"main": [1, 2, 3], "free": [1], "better": [1], "moved": [1]}
    assert len({system.title for system in SYSTEMS.values()}) == len(SYSTEMS)
    drawn = {system.table for system in SYSTEMS.values() if system.series is not None}
    assert drawn == {"main", "free"}, "a line through systems of one length would show nothing"
    assert all(system.series for system in SYSTEMS.values() if system.table in drawn)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_row_is_trained_as_all_others_behind_the_same_reader(name: str) -> None:
    row, every, made = config(name), config("main-every"), segmenter(name)
    assert (row.training, row.testing) == (every.training, every.testing)
    assert row.training.batch_type == "sentences"
    assert (row.data.max_chars, row.data.trg) == (every.data.max_chars, every.data.trg)
    assert (row.model.encoder, row.model.decoder) == (every.model.encoder, every.model.decoder)
    assert made.output_dim == 620
    if "act-enc" in name:
        assert isinstance(made, ActSegmenter)
        return
    assert isinstance(made, Segmenter)
    assert (made.reader.kind, made.reader.output_dim) == ("bigru", 1024)
    assert row.model.segmenter.options["reader"].get("num_layers", 1) == (2 if "-deep" in name else 1)
    learns = made.cutter.needs_weights()
    pooling = "attention" if name.endswith("attention") else "weighted" if learns else "mean"
    assert made.pooling.kind == pooling


@pytest.mark.parametrize("name", [name for name in SYSTEMS if re.match(r"main-.*-[\d.]+$", name)])
def test_a_row_has_the_length_of_its_name(name: str) -> None:
    length, made, cuts = float(name.rpartition("-")[2]), segmenter(name), config(name).data.cuts
    if "symbols" in name:
        assert cuts is not None
        assert cuts.voc_limit == {2: 290, 4: 3200, 4.9: 16000}[length]  # type: ignore[union-attr]
    elif "entropy" in name:
        assert isinstance(cuts, EntropyCuts)
        assert cuts.target == length
    elif "fixed" in name:
        assert config(name).model.segmenter.options["cutter"]["k"] == length
    else:
        assert made.target == length


@pytest.mark.parametrize("name", [name for name in SYSTEMS if re.search("-from-[a-z]|^moved-", name)])
def test_a_start_from_other_cuts_lets_go_of_them_at_the_length_of_the_others(name: str) -> None:
    cuts, weight = config(name).data.cuts, config(name).model.segmenter.imitation_weight
    assert isinstance(weight, Schedule)
    assert (weight.end, weight.updates) == (0.0, 3000)
    assert segmenter(name).target == getattr(cuts, "target", 4.0) == 4.0
    if name.startswith("moved-"):  # the cuts of one sentence in 50 are known
        assert isinstance(cuts, FileCuts)
        assert (cuts.train.stem, cuts.dev, weight.start) == (name.removeprefix("moved-"), None, 50.0)
        return
    assert weight.start == 1.0


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name.startswith("free-")])
def test_a_free_row_has_no_rate_and_starts_where_its_name_says(name: str) -> None:
    options = config(name).model.segmenter.options
    assert segmenter(name).target is None
    start = float(re.search(r"from-(\d)", name)[1])  # type: ignore[index]
    if "disarm" in name:
        assert options["cutter"]["start"] == start
        return
    share = torch.sigmoid(torch.tensor(options["cutter"]["halting_bias"]))
    assert 1 / share == pytest.approx(start, rel=0.03)
    assert config(name).model.segmenter.tau == (1.0 if name.endswith("tau-1") else 0.0)
