"""recipes/reading: what its rows share, and that every one of them can be built."""

from pathlib import Path

import pytest
import torch

from caesura.components import build_parts
from caesura.config import Config, SymbolCuts
from caesura.experiments.outcome import CUTS, TEST
from caesura.experiments.recipe import FILE, Chosen, load_recipe, systems
from caesura.segmenters.base import BaseSegmenter

RECIPE = load_recipe(Path(__file__).parents[2] / "recipes" / "reading" / FILE)
SYSTEMS = {system.row: system for system in systems(RECIPE, Chosen(Path("out")))}
FRONT = {"char", "char-2layer", "bpe", "lookup-every"}  # without a reader


def config(row: str) -> Config:
    return SYSTEMS[row].members[1].load()


def segmenter(row: str) -> BaseSegmenter:
    with torch.device("meta"):
        return build_parts(config(row), 99, 81)[0]


def test_it_has_a_row_for_each_system_with_one_seed_and_measures_its_cuts() -> None:
    assert len(SYSTEMS) == 21
    assert [measure.name for measure in RECIPE.wanted()] == [TEST.name, CUTS.name]
    assert all([*system.members] == [1] and system.series for system in SYSTEMS.values())
    assert len({system.title for system in SYSTEMS.values()}) == 21


@pytest.mark.parametrize("row", SYSTEMS)
def test_a_row_is_trained_as_all_others_and_can_be_built(row: str) -> None:
    variant, char = config(row), config("char")
    assert variant.training == char.training
    assert variant.testing == char.testing
    assert (variant.data.max_chars, variant.data.trg) == (char.data.max_chars, char.data.trg)
    assert variant.model.decoder == char.model.decoder
    assert variant.model.encoder.options.get("num_layers", 1) == (2 if row == "char-2layer" else 1)
    assert segmenter(row).output_dim == 620
    assert variant.name.startswith("reading-") or row == "char"


@pytest.mark.parametrize("row", [row for row in SYSTEMS if row not in FRONT])
def test_all_readers_have_states_of_one_width(row: str) -> None:
    reader = config(row).model.segmenter.options["reader"]
    assert reader["type"] == ("gru" if row.startswith("gru-") else "bigru")
    assert segmenter(row).reader.output_dim == 1024  # type: ignore[union-attr]


@pytest.mark.parametrize("row", [row for row in SYSTEMS if row.partition("-")[0] in ("cif", "act", "random")])
def test_a_rate_is_asked_for_by_its_number(row: str) -> None:
    assert segmenter(row).target == float(row.rpartition("-")[2])


def test_given_symbols_are_those_of_the_measured_size() -> None:
    assert config("symbols-4").data.cuts == SymbolCuts(type="bpe", voc_limit=3200)
    assert config("bpe").data.src.voc_limit == 2000
    assert [config(f"fixed-{k}").model.segmenter.options["cutter"]["k"] for k in (2, 3, 4, 6)] == [2, 3, 4, 6]
