"""Loss and gradients of a batch: padded as unpadded, replayed from graphs as computed anew."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import ACT, ACT_DECODER, BIGRU, LOOKUP, RECURRENT, SIZES, TRANSFORMER, sentences, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from caesura.data.batching import BatchPlan, Split, collate, rounded
from caesura.inference import Translator
from caesura.kernels import graphs, used
from caesura.kernels.graphs import Played
from caesura.segmenters.base import BaseSegmenter
from caesura.segmenters.cutters.bernoulli import Bernoulli
from caesura.training import step as steps
from caesura.training.feed import feed, padded
from caesura.training.step import SUMS, Step

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
HMRNN = {"type": "hmrnn", "embedding_dim": 4, "size": 3, "output_dim": 5, "rate": {"target": 2.0}}
BOTH = pytest.mark.parametrize(
    "segmenter",
    [LOOKUP, ACT, ACT | {"bidirectional": True}, HMRNN],
    ids=["lookup", "act", "both ways", "hmrnn"],
)
ROUTING = {
    "reader": {"type": "blocks", "embedding_dim": 6, "calibrate": True},
    "cutter": {"type": "routing", "smoothing": "character"},
    "pooling": {"type": "attention", "size": 4},
    "output_dim": 5,
    "rate": {"target": 3.0},
}
STEIN = {
    "reader": {"type": "bigru", "embedding_dim": 4, "size": 3},
    "cutter": {"type": "cif", "stein": 0.5},
    "pooling": "weighted",
    "output_dim": 5,
    "rate": {"target": 2.0},
}
PAIRS = list(zip(sentences(40, seed=1, longest=30), sentences(40, seed=2, vocab_size=9), strict=True))


def gradients(model: Translator) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def close(values: dict[str, Tensor], expected: dict[str, Tensor], within: float) -> None:
    assert values.keys() == expected.keys()
    for name, value in expected.items():
        assert float((values[name] - value).norm()) <= within * (float(value.norm()) + 1e-3), name


@pytest.mark.parametrize(
    "segmenter", [LOOKUP, ACT, ROUTING, HMRNN], ids=["lookup", "act", "routing", "hmrnn"]
)
@pytest.mark.parametrize("normalization", ["symbols", "sentences"])
def test_padding_in_every_direction_changes_neither_sums_nor_gradients(
    segmenter: dict[str, Any], normalization: str
) -> None:
    model = tiny_model(segmenter, training={"normalization": normalization})
    step = Step(model, model.config.training)
    values = []
    for shape in ((0, 0, 0), (9, 40, 17)):
        batch = collate(PAIRS[:5], shape=shape)
        assert len(batch) == 5
        sums = step(batch)
        values.append(gradients(model) | dict(zip((*SUMS, *model.counted), sums, strict=True)))
    assert batch.shape == (9, 40, 17)
    close(values[1], values[0], 1e-13)


def test_the_sums_are_those_of_the_loss() -> None:
    model = tiny_model(ACT).train()
    batch = collate(PAIRS[:3])
    with torch.no_grad():
        loss = model(batch)
        segments = model.segmenter(batch.src, batch.src_lengths)
    names = (*SUMS, *model.counted)
    sums = dict(zip(names, Step(model, model.config.training)(batch).tolist(), strict=True))
    assert sums["penalty"] == pytest.approx(float(segments.penalty.sum()), rel=1e-12)
    last = (segments.weights * segments.ends).sum(1) / batch.src_lengths
    assert sums["remainder"] == pytest.approx(float(last.sum()), rel=1e-12)
    assert sums["penalty of"] == sums["remainder of"] == 3
    text = torch.arange(segments.ends.shape[1]) < batch.src_lengths[:, None] - 1
    assert sums["live"] == int((~segments.ends & text).sum()) > 0
    assert sums["live of"] == sums["source_symbols"]
    assert sums["loss"] == pytest.approx(3 * float(loss.total), rel=1e-12)
    assert sums["cross_entropy"] == pytest.approx(float(loss.cross_entropy), rel=1e-12)
    assert sums["sentences"] == 3
    assert sums["symbols"] == sum(len(target) + 1 for _, target in PAIRS[:3])
    assert sums["source_symbols"] == sum(len(source) for source, _ in PAIRS[:3])
    assert not any(name.startswith("output") for name in sums)  # which nobody cuts


@given(st.integers(1, 5000))
def test_sizes_are_rounded_up_to_few(size: int) -> None:
    result = rounded(size)
    assert result % 8 == 0
    assert size <= result < max(size + 8, 1.125 * size + 1)
    assert rounded(result) == result


def test_eight_sizes_serve_a_doubling() -> None:
    assert len({rounded(size) for size in range(129, 257)}) == 8


def test_batches_come_in_the_plans_order() -> None:
    lengths = np.array([(len(s), len(t)) for s, t in PAIRS])
    plan = BatchPlan(lengths, 7).epoch(0)
    planned = [*feed(PAIRS, plan[2:], torch.device("cpu"))]
    assert [rows.tolist() for rows, _ in planned] == [rows.tolist() for rows in plan[2:]]
    assert all([part.indices.tolist() for part in parts] == [rows.tolist()] for rows, parts in planned)
    batch = padded(PAIRS, plan[0])
    assert batch.shape == tuple(map(rounded, batch.shape))
    assert len(batch) == 7


def test_parts_for_a_gpu_know_the_whole_and_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned: list[int] = []
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: pinned.append(id(tensor)) or tensor)
    rows = np.arange(7)
    fed = [next(feed(PAIRS, [rows], torch.device("cuda"), Split(rank, 2, 2))) for rank in (0, 1)]
    parts = [part for planned in fed for part in planned.parts]
    assert sorted(int(i) for part in parts for i in part.indices) == rows.tolist()
    for part in parts:
        assert part.whole is not None
        assert part.whole.tolist() == [sum(len(target) + 1 for _, target in PAIRS[:7]), 7]
        assert {id(part.whole), id(part.src), id(part.trg_out)} <= {*pinned}


@needs_cuda
def test_a_gpus_batches_are_pinned_and_in_the_plans_order() -> None:
    lengths = np.array([(len(s), len(t)) for s, t in PAIRS])
    plan = BatchPlan(lengths, 7).epoch(0)
    batches = [part for _, parts in feed(PAIRS, plan, torch.device("cuda")) for part in parts]
    assert [batch.indices.tolist() for batch in batches] == [rows.tolist() for rows in plan]
    assert all(batch.src.is_pinned() and batch.trg_out.is_pinned() for batch in batches)


# float64 and float32: the same function; bfloat16: autocast's copies of the weights are fresh ones.
PRECISIONS = {
    "float64": (torch.float64, 1e-9),
    "float32": (torch.float32, 1e-3),
    "bfloat16": (torch.float32, 0.05),
}


def side_by_side(
    segmenter: dict[str, Any],
    decoder: dict[str, Any],
    precision: str,
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[int, int] | None = None,
    **sections: Any,
) -> Step:
    """Steps with and without graphs over batches of a few shapes, while the weights change; the one with.

    `given`: random cuts from the first to below the second.
    """
    dtype, within = PRECISIONS[precision]
    training = {
        "precision": "bfloat16" if precision == "bfloat16" else "float32",
        "label_smoothing": 0.0 if precision == "float64" else 0.1,
    }
    plain, captured = (
        tiny_model(segmenter, decoder=decoder, training=training, **sections).to(dtype).cuda()
        for _ in range(2)
    )
    monkeypatch.setenv(graphs.VARIABLE, "0")
    plainly = Step(plain, plain.config.training)
    monkeypatch.delenv(graphs.VARIABLE)
    replayed = Step(captured, captured.config.training)
    assert plainly.graphs is None
    assert replayed.graphs is not None
    generator = torch.Generator("cuda").manual_seed(0)
    numbers = np.random.default_rng(0)
    for turn in range(24):
        batch = padded(PAIRS, numbers.permutation(40)[: (8, 16)[turn % 2]])
        if given:
            cuts = torch.from_numpy(numbers.integers(*given, batch.src.shape)).to(torch.int8)
            batch = replace(batch, src_cuts=cuts.pin_memory())
        sums = []
        for step in (plainly, replayed):
            torch.manual_seed(turn)  # of what is drawn on either way
            sums.append(step(batch, turn).clone())
        torch.testing.assert_close(sums[1], sums[0], rtol=within, atol=1e-9)
        close(gradients(captured), gradients(plain), within)
        for model in (plain, captured):  # of one model's cuts, so that rounding cannot set them apart
            model.observe(*sums[0][len(SUMS) : len(SUMS) + 2], torch.tensor(True, device="cuda"))
        with torch.no_grad():
            for one, other in zip(plain.parameters(), captured.parameters(), strict=True):
                one += 0.1 * torch.randn(one.shape, generator=generator, device="cuda", dtype=dtype)
                other.copy_(one)
    return replayed


@needs_cuda
@BOTH
@pytest.mark.parametrize("decoder", [RECURRENT, ACT_DECODER], ids=["recurrent", "act"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_graphs_give_the_gradients_of_the_model_while_its_weights_change(
    segmenter: dict[str, Any], decoder: dict[str, Any], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = side_by_side(segmenter, decoder, precision, monkeypatch)
    assert step.graphs is not None
    assert len(step.graphs) >= 3


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_graphs_leave_a_halting_unit_alone_that_does_not_learn(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = side_by_side(ACT | {"learn_halting": False, "tau": 0.0}, RECURRENT, precision, monkeypatch)
    assert {p.grad for p in step.model.segmenter.halting.parameters()} == {None}


@needs_cuda
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_graphs_cut_where_the_config_says(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    step = side_by_side(ACT | {"cut_after": "ac"}, RECURRENT, precision, monkeypatch)
    assert len(step.model.segmenter.cut_after) == 2


@needs_cuda
@pytest.mark.parametrize("given", [None, (0, 2), (-1, 2)], ids=["own", "some", "all"])
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "cutter", ["every", "fixed", "random", "given", "act", "cif", "stein", "carry", "bernoulli", "routing"]
)
def test_graphs_serve_every_cutter(
    cutter: str, precision: str, given: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if cutter == "given" and given is None:
        pytest.skip("it cuts only where cuts are given")
    # Drawn cuts would differ between the two; these follow from the scores.
    monkeypatch.setattr(
        Bernoulli, "_draw", lambda self, scores, free: torch.stack((scores > 0, scores > 0.5))
    )
    learns = cutter in ("act", "cif", "stein", "carry")
    options = {"fixed": {"k": 2.5}, "carry": {"type": "act", "carry": True}, "stein": STEIN["cutter"]}
    segmenter = {
        "reader": {"type": "gru" if cutter == "random" else "bigru", "embedding_dim": 4, "size": 3},
        "cutter": {"type": cutter, **options.get(cutter, {})},
        "pooling": "weighted" if learns else "last" if cutter == "every" else "mean",
        "output_dim": 5,
        **({"rate": {"target": 2.0}} if cutter in ("random", "cif", "stein") else {}),
    }
    side = {"lang": "xx", "level": "char"}
    data = {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side, "cuts": {"type": "whitespace"}}
    step = side_by_side(segmenter, RECURRENT, precision, monkeypatch, given, data=data)
    assert step.graphs is not None
    assert len(step.graphs) >= 2


@needs_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    ("reader", "smoothing", "pooling"),
    [
        ("conv", "segment", "start"),
        ("conv", "character", "max"),
        ("blocks", "character", "attention"),
        ("transformer", "segment", "mean"),
    ],
)
def test_graphs_serve_every_part(
    reader: str, smoothing: str, pooling: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {
        "conv": {"embedding_dim": 6, "filters": [3, 3], "highway_layers": 1},
        "blocks": {"embedding_dim": 6, "calibrate": True},
        "transformer": {**SIZES, "window": 2},
    }
    segmenter = {
        "reader": {"type": reader, **options[reader]},
        "cutter": {"type": "routing", "smoothing": smoothing},
        "pooling": pooling,
        "output_dim": 5,
        "rate": {"target": {"start": 4.0, "end": 2.0, "updates": 20}, "by": "quantile"},
    }
    step = side_by_side(segmenter, RECURRENT, precision, monkeypatch)
    assert step.graphs is not None


@needs_cuda
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("places", ["segments", "symbols"])
@pytest.mark.parametrize("kind", ["both", "encoder", "decoder"])
def test_graphs_serve_transformers(
    kind: str, places: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = TRANSFORMER | {"size": 16}
    encoder = BIGRU if kind == "decoder" else blocks | {"places": places}
    decoder = RECURRENT if kind == "encoder" else blocks | {"tied": True}
    step = side_by_side(ACT, decoder, precision, monkeypatch, encoder=encoder)
    assert step.graphs is not None
    assert len(step.graphs) >= 3


@needs_cuda
@pytest.mark.parametrize("positions", ["rotary", "sinusoidal"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_graphs_drop_what_a_plain_step_drops(
    precision: str, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = TRANSFORMER | {"size": 16, "dropout": 0.3, "positions": positions}
    side_by_side(LOOKUP | {"embedding_dim": 16}, blocks, precision, monkeypatch, encoder=blocks)
    assert used["residual_norm"][0] == used["linear"][0] == "triton"


RISING = {"start": 0.0, "end": 2.0, "updates": 20}
TURNED = {  # segmenters with numbers that change from update to update
    "tau": ACT | {"tau": RISING},
    "pi": ACT | {"tau": 0.0, "rate": {"target": 3.0, "by": "pi"}},
    **{
        by: {
            "reader": {"type": "bigru", "embedding_dim": 4, "size": 3},
            "cutter": {"type": cutter, "temperature": {"start": 3.0, "end": 1.0, "updates": 20}},
            "pooling": "weighted",
            "output_dim": 5,
            "rate": {"target": {"start": 4.0, "end": 2.0, "updates": 20}, "by": by},
        }
        for by, cutter in (("scaling", "cif"), ("quantile", "act"), ("logits", "act"), ("ratio", "act"))
    },
    "hmrnn": HMRNN
    | {
        "slope": {"start": 1.0, "end": 5.0, "updates": 20},
        "rate": {"target": {"start": 4.0, "end": 2.0, "updates": 20}},
    },
}


@needs_cuda
@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("name", TURNED)
def test_graphs_read_numbers_as_they_are_now(
    name: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = side_by_side(TURNED[name], RECURRENT, precision, monkeypatch)
    step.model.follow(99)
    values = {key: knob.value.item() for key, knob in step.model.knobs.items()}
    if name == "tau":
        assert values["tau"] == pytest.approx(2.0)
    elif name == "pi":
        assert values["tau"] != 0
    elif name == "hmrnn":
        assert (values["target_length"], values["slope"]) == pytest.approx((2.0, 5.0))
        assert values["threshold"] != 0.5
    else:
        assert (values["target_length"], values["temperature"]) == pytest.approx((2.0, 1.0))


def repeated(step: Step, count: int) -> list[dict[str, Tensor]]:
    """Sums and gradients of one batch, so many times, with weights that stay."""
    batch, values = padded(PAIRS, np.arange(8)), []
    for _ in range(count):
        sums = step(batch).clone()
        values.append(gradients(step.model) | {"sums": sums})
    return values


@needs_cuda
def test_noise_is_drawn_anew_in_every_replay_and_goes_on_where_a_run_is_resumed() -> None:
    steps_made = []
    for _ in range(3):
        model = tiny_model(STEIN).cuda()
        steps_made.append(Step(model, model.config.training))
    torch.manual_seed(1)
    whole = repeated(steps_made[0], 6)  # the first plainly, the second captured, the others replayed
    assert steps_made[0].graphs is not None
    assert len(steps_made[0].graphs) == 1
    assert len({float(values["sums"][0]) for values in whole}) == 6
    assert len({float(values["segmenter.cutter.score.weight"].norm()) for values in whole}) == 6
    torch.manual_seed(1)
    repeated(steps_made[1], 3)
    state = torch.cuda.get_rng_state()
    torch.manual_seed(2)
    torch.cuda.set_rng_state(state)
    for values, expected in zip(repeated(steps_made[2], 3), whole[3:], strict=True):
        close(values, expected, 1e-9)


class Keys:
    """Graphs that capture nothing, and remember by which keys they would have."""

    def __init__(self, device: torch.device) -> None:
        self.played: set[object] = set()

    def play(self, key: object, function: Callable[[], Any]) -> Played[Any]:
        self.played.add(key)
        return Played(function(), None)


@pytest.mark.parametrize("name", ["tau", "pi", "logits", "ratio"])
def test_numbers_change_without_a_new_capture(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "wanted", lambda device: True)
    monkeypatch.setattr(steps, "Graphs", Keys)
    segmenter = TURNED[name] | ({"rate": {"target": 3.0, "by": name}} if name in ("logits", "ratio") else {})
    model = tiny_model(segmenter)
    step, batch, losses = Step(model, model.config.training), collate(PAIRS[:5]), set()
    keys: set[object] = set()
    for update in range(20, 40):  # where temperatures stay, so that the cuts do
        losses.add(float(step(batch, update - 20 if name == "tau" else update)[0]))
        model.observe(torch.tensor(100), torch.tensor(10 + update), torch.tensor(True))
        keys = keys or {*step.graphs.played}  # type: ignore[union-attr]
    assert keys == step.graphs.played  # type: ignore[union-attr]
    assert len(losses) > 10


@needs_cuda
@BOTH
def test_memory_is_flat_over_many_shapes(segmenter: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MOST", 6)
    model = tiny_model(segmenter).float().cuda()
    step = Step(model, model.config.training)
    numbers, levels = np.random.default_rng(0), []
    for _ in range(400):
        step(padded(PAIRS, numbers.permutation(40)[: numbers.integers(1, 40)]))
        levels.append(torch.cuda.memory_reserved())
    assert max(levels[200:]) <= max(levels[:200])


@needs_cuda
@BOTH
def test_beyond_its_share_of_memory_all_is_forgotten_and_nothing_else(
    segmenter: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "SHARE", 0.0)
    monkeypatch.setattr(graphs, "PART", 0.0)
    step = side_by_side(segmenter, RECURRENT, "float64", monkeypatch)
    assert step.graphs is not None
    assert len(step.graphs) <= 1


def test_a_part_that_cannot_be_captured_says_why() -> None:
    model = tiny_model(
        {"reader": {"type": "lookup", "embedding_dim": 4}, "cutter": "every", "pooling": "mean"}, scale=1.0
    )
    segmenter = model.segmenter
    assert segmenter.uncaptured() is None
    segmenter.pooling.uncaptured = lambda: "it asks the host"  # type: ignore[union-attr,method-assign]
    assert segmenter.uncaptured() == "it asks the host"
    assert "forward" in str(type("Whole", (BaseSegmenter,), {"forward": lambda self: None})().uncaptured())
