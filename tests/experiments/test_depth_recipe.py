"""The recipe of Table 4: every system with one to six layers, as printed and repaired, otherwise equal."""

from functools import cache
from itertools import pairwise
from pathlib import Path

import torch

from caesura.components import build_parts
from caesura.experiments.recipe import FILE, Chosen, RecipeSystem, load_recipe, systems

RECIPE = Path(__file__).parents[2] / "recipes" / "depth" / FILE
SYSTEMS = ("word", "bpe", "char", "act")


@cache
def rows() -> dict[str, RecipeSystem]:
    return {system.name: system for system in systems(load_recipe(RECIPE), Chosen(Path("out")))}


def test_every_system_has_every_depth_in_both_ways() -> None:
    wanted = {f"one-{name}" for name in SYSTEMS}
    wanted |= {f"{way}-{s}-{n}" for way in ("printed", "repaired") for s in SYSTEMS for n in range(2, 7)}
    assert {name for name in rows() if not name.startswith(("options-", "reader-"))} == wanted
    for name in wanted:
        way, _, *depth = name.split("-")
        options = rows()[name].members[1].load().model.encoder.options
        assert options.get("num_layers", 1) == int([*depth, "1"][0])
        assert options.get("residual", False) == options.get("norm", False) == (way == "repaired")


def test_rows_differ_from_those_of_one_layer_in_the_encoder_alone() -> None:
    for name, row in rows().items():
        config, way = row.members[1].load(), name.split("-")[0]
        if way in ("options", "reader"):
            continue
        one = rows()[f"one-{name.split('-')[1]}"].members[1].load()
        assert config.training == one.training
        assert config.data == one.data
        assert config.model.segmenter == one.model.segmenter
        assert config.model.decoder == one.model.decoder


def test_the_options_are_compared_at_six_layers() -> None:
    encoders = {n: s.members[1].load() for n, s in rows().items() if n.startswith("options-")}
    assert {c.model.encoder.options["num_layers"] for c in encoders.values()} == {6}
    named = ("residual", "norm", "orthogonal", "variational", "recurrent")
    for name, config in encoders.items():
        options = config.model.encoder.options
        options |= {"recurrent": options.get("recurrent_dropout")}
        given = {key for key in named if options.get(key)} | ({"warmup"} if config.training.warmup else set())
        parts = name.removeprefix("options-").split("-")
        assert given == ({*named, "warmup"} if parts == ["all"] else {*parts}), name


def test_every_row_can_be_built_and_a_layer_more_is_more_parameters() -> None:
    sizes = {}
    for name, row in rows().items():
        with torch.device("meta"):
            parts = build_parts(row.members[1].load(), 99, 81)
        sizes[name] = sum(parameter.numel() for part in parts for parameter in part.parameters())
    for way in ("printed", "repaired"):
        for system in SYSTEMS:
            counts = [sizes[f"{way}-{system}-{n}"] for n in range(2, 7)]
            assert len({b - a for a, b in pairwise(counts)}) == 1
