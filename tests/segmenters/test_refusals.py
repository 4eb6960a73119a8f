"""What segmenters refuse, each in one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from combinations import READERS, VOCABULARY, act_layer, hmrnn, made
from torch import nn
from wording import refuses, wording

from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.cutters.act import Act
from caesura.segmenters.cutters.cif import Cif
from caesura.segmenters.cutters.hard import Every, Fixed, Given, Random
from caesura.segmenters.cutters.routing import Routing
from caesura.segmenters.lookup import LookupSegmenter
from caesura.segmenters.parts import Cutter, Segmenter
from caesura.segmenters.pooling import Attention, Last, Mean, Weighted
from caesura.segmenters.rate import Rate
from caesura.segmenters.readers.blocks import Blocks
from caesura.segmenters.readers.conv import Conv
from caesura.segmenters.readers.lookup import Lookup
from caesura.segmenters.readers.recurrent import BiGru, Gru
from caesura.segmenters.readers.transformer import Transformer


def one_sentence(problem: pytest.ExceptionInfo[Exception], *words: str) -> None:
    text = wording(problem.value)
    assert "\n" not in text
    assert not text.endswith((".", ":", " "))
    for word in words:
        assert word in text


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda: Lookup(0, 4), "vocab_size"),
        (lambda: Lookup(9, 0), "embedding_dim"),
        (lambda: Gru(9, 4, 0), "size"),
        (lambda: BiGru(9, 4, -1), "size"),
        (lambda: Gru(9, 4, 3, num_layers=0), "num_layers"),
        (lambda: BiGru(9, 4, 3, num_layers=65), "num_layers"),
        (lambda: Segmenter(Lookup(9, 4), Every(), Mean(), output_dim=0), "output_dim"),
        (lambda: Lookup(9, 4, dropout=1.0), "dropout"),
        (lambda: BiGru(9, 4, 3, dropout=-0.1), "dropout"),
        (lambda: Fixed(0.99), "k"),
        (lambda: Fixed(0), "k"),
        (lambda: Fixed(math.nan), "k"),
        (lambda: Fixed(math.inf), "k"),
        (lambda: Rate(0.5), "target"),
        (lambda: Rate(math.nan), "target"),
        (lambda: Rate(math.inf), "target"),
        (lambda: Random(-1), "seed"),
        (lambda: Random(2**31), "seed"),
        (lambda: Act(4, epsilon=1.0), "epsilon"),
        (lambda: Act(4, halting_bias=math.nan), "halting_bias"),
        (lambda: Routing(4, "word"), "smoothing"),  # type: ignore[arg-type]
        (lambda: Conv(9, 4, []), "filters"),
        (lambda: Conv(9, 4, [3, 0]), "filters"),
        (lambda: Conv(9, 4, highway_layers=-1), "highway_layers"),
        (lambda: Blocks(9, 4, largest=0), "largest"),
        (lambda: Blocks(9, 4, width=0), "width"),
        (lambda: Transformer(9, 8, 2, 4, window=0), "window"),
        (lambda: Transformer(9, 8, 3, 4), "heads"),
        (lambda: Transformer(0, 8, 2, 4), "vocab_size"),
        (lambda: Attention(4, 0), "size"),
    ],
)
def test_a_bad_option_is_named_first(build: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name} ") as problem:
        build()
    one_sentence(problem)


@pytest.mark.parametrize(
    ("cutter", "rate", "name"),
    [
        (Cif(4), None, "cif"),
        (Random(), None, "random"),
        (Fixed(2), Rate(3.0), "fixed"),
        (Every(), Rate(3.0), "every"),
        (Given(), Rate(3.0), "given"),
    ],
)
def test_a_rate_goes_with_the_cutters_that_keep_one(cutter: Cutter, rate: Rate | None, name: str) -> None:
    with pytest.raises(ValueError, match=r"^rate ") as problem:
        Segmenter(Lookup(9, 4), cutter, Weighted(), rate=rate)
    one_sentence(problem, name)


@pytest.mark.parametrize("pooling", [Mean(), Last()], ids=["mean", "last"])
@pytest.mark.parametrize(("cutter", "rate"), [(Act(4), None), (Cif(4), Rate(3.0))], ids=["act", "cif"])
def test_a_cutter_that_learns_by_its_weights_needs_a_pooling_that_uses_them(
    cutter: Cutter, rate: Rate | None, pooling: Mean | Last
) -> None:
    with pytest.raises(ValueError, match=r"^pooling ") as problem:
        Segmenter(Lookup(9, 4), cutter, pooling, rate=rate)
    one_sentence(problem, type(cutter).__name__.lower(), type(pooling).__name__.lower(), "weighted")


SYMBOLS, LENGTHS = torch.tensor([[4, 5, 6]]), torch.tensor([3])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (("bigru", "fixed", "mean"), ("bigru",)),
        (("lookup", "cif", "weighted"), ("cif",)),
        (("gru", "act", "weighted"), ("cutter act", "ActSegmenter")),
        (("gru", "random", "mean"), ("random",)),
        (("gru", "routing", "mean"), ("cutter routing",)),
        (("conv", "fixed", "mean"), ("reader conv",)),
        (("blocks", "fixed", "mean"), ("reader blocks",)),
    ],
)
@pytest.mark.parametrize("streaming", [{"final": False}, {"state": object()}], ids=["piece", "state"])
def test_parts_that_look_ahead_take_whole_sentences(
    parts: tuple[str, str, str], words: tuple[str, ...], streaming: dict[str, object]
) -> None:
    with pytest.raises(ValueError) as problem:  # noqa: PT011
        made(*parts)(SYMBOLS, LENGTHS, **streaming)
    one_sentence(problem, *words)


@pytest.mark.parametrize("segmenter", [made("gru", "act", "weighted"), act_layer(), LookupSegmenter(9, 4)])
@pytest.mark.parametrize(
    "cuts",
    [
        torch.zeros(1, 2, dtype=torch.int8),
        torch.zeros(3, dtype=torch.int8),
        torch.zeros(2, 3, dtype=torch.int8),
        torch.zeros(1, 3, dtype=torch.long),
        torch.zeros(1, 3, dtype=torch.bool),
        torch.zeros(1, 3),
    ],
    ids=["short", "flat", "rows", "long", "bool", "float"],
)
def test_cuts_have_the_shape_of_the_symbols_and_are_int8(segmenter: Segmenter, cuts: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"^given ") as problem:
        segmenter(SYMBOLS, LENGTHS, given=cuts)
    one_sentence(problem, "int8", "[1, 3]", str(list(cuts.shape)))


def test_a_lookup_cannot_leave_a_cut_out() -> None:
    layer, cuts = LookupSegmenter(9, 4), torch.ones(1, 3, dtype=torch.int8)
    assert layer(SYMBOLS, LENGTHS, given=cuts).vectors.equal(layer(SYMBOLS, LENGTHS).vectors)
    with pytest.raises(ValueError, match="lookup") as problem:
        layer(SYMBOLS, LENGTHS, given=-cuts)
    one_sentence(problem)


@pytest.mark.parametrize(
    ("reader", "cutter", "pooling", "rate", "wrong"),
    [
        (nn.Embedding(9, 4), Fixed(2), Mean(), None, "reader"),
        (Mean(), Fixed(2), Mean(), None, "reader"),
        (Lookup(9, 4), Fixed, Mean(), None, "cutter"),
        (Lookup(9, 4), Fixed(2), "mean", None, "pooling"),
        (Lookup(9, 4), Cif(4), Weighted(), 4.0, "rate"),
    ],
)
def test_arguments_of_another_kind_are_refused(
    reader: Any, cutter: Any, pooling: Any, rate: Any, wrong: str
) -> None:
    with pytest.raises(TypeError, match=f"^{wrong} ") as problem:
        Segmenter(reader, cutter, pooling, rate=rate)
    one_sentence(problem)


def test_a_cutter_has_to_fit_its_reader() -> None:
    with pytest.raises(ValueError, match=r"^cutter cif .*input_dim 5.* lookup .*4") as problem:
        Segmenter(Lookup(9, 4), Cif(5), Weighted(), rate=Rate(2.0))
    one_sentence(problem)


def test_a_pooling_has_to_fit_its_reader() -> None:
    segmenter = Segmenter(Lookup(9, 4), Fixed(2), Attention(5))
    with pytest.raises(ValueError, match=r"^pooling attention .*input_dim 5.* 4") as problem:
        segmenter(SYMBOLS, LENGTHS)
    one_sentence(problem)


@pytest.mark.parametrize(
    ("build", "by"),
    [
        (lambda: Segmenter(Lookup(9, 4), Act(4), Weighted(), rate=Rate(3.0, "scaling")), "scaling"),
        (lambda: Segmenter(Lookup(9, 4), Cif(4), Weighted(), rate=Rate(3.0, "quantile")), "quantile"),
        (lambda: Segmenter(Lookup(9, 4), Random(), Weighted(), rate=Rate(3.0, "pi")), "pi"),
        (lambda: Segmenter(Lookup(9, 4), Routing(4), Mean(), rate=Rate(3.0, "pi")), "pi"),
        (lambda: Segmenter(Lookup(9, 4), Routing(4), Mean(), rate=Rate(3.0, "scaling")), "scaling"),
        (lambda: ActSegmenter(9, 4, 4, 4, rate=Rate(3.0, "quantile")), "quantile"),
    ],
)
def test_a_cutter_keeps_a_rate_in_its_own_ways(build: Callable[[], object], by: str) -> None:
    with pytest.raises(ValueError, match=f"^rate.by {by} ") as problem:
        build()
    one_sentence(problem)


def test_a_rate_is_kept_in_a_known_way() -> None:
    with pytest.raises(ValueError, match=r"^by .*scaling, ") as problem:
        Rate(4.0, by="luck")
    one_sentence(problem, "luck")


def test_given_needs_cuts() -> None:
    segmenter = made("lookup", "given", "mean")
    assert segmenter.needs_given()
    with pytest.raises(ValueError, match=r"^cutter given ") as problem:
        segmenter(SYMBOLS, LENGTHS)
    one_sentence(problem)


def test_tau_goes_with_a_cutter_that_has_a_penalty() -> None:
    made("lookup", "act", "weighted").check_tau(0.5)
    made("lookup", "cif", "weighted").check_tau(0.0)
    with pytest.raises(ValueError, match=r"^tau .*0\.5.* cif ") as problem:
        made("lookup", "cif", "weighted").check_tau(0.5)
    one_sentence(problem)


@pytest.mark.parametrize("symbol", [-1, VOCABULARY])
@pytest.mark.parametrize(
    "build",
    [act_layer, hmrnn, *(partial(made, reader, "every", "mean") for reader in READERS)],
)
def test_ids_beyond_the_table_are_named(build: Callable[[], BaseSegmenter], symbol: int) -> None:
    symbols = SYMBOLS.clone()
    symbols[0, 0] = symbol
    with refuses(ValueError, "symbols", symbol):
        build()(symbols, LENGTHS)
    with refuses(ValueError, "symbols"):
        build()(SYMBOLS.double(), LENGTHS)
