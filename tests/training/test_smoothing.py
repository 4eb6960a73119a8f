"""Label smoothing: the formula, its gradients, and what it leaves alone."""

from typing import Any

import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, RECURRENT, sentences, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from caesura.data.batching import collate
from caesura.data.vocabulary import PAD
from caesura.training.risk import risk_loss
from caesura.translator import Loss, _cross_entropy

SYSTEMS = pytest.mark.parametrize(
    ("segmenter", "decoder"), [(LOOKUP, RECURRENT), (ACT, ACT_DECODER)], ids=["plain", "act"]
)
PAIRS = list(zip(sentences(7, seed=3), sentences(7, seed=4, vocab_size=9), strict=True))


@torch.no_grad()
def loss_of(pairs: list[Any], shape: tuple[int, int, int] = (0, 0, 0), **training: Any) -> Loss:
    return tiny_model(training=training)(collate(pairs, shape=shape))


def drawn(seed: int, symbols: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits [N, V] that are rather sure of themselves, and targets [N], some of them padding."""
    generator = torch.Generator().manual_seed(seed)
    logits = 5 * torch.randn(symbols, size, generator=generator, dtype=dtype)
    return logits.requires_grad_(), torch.randint(size, (symbols,), generator=generator)


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(2, 9), st.floats(0, 0.99))
def test_it_is_the_cross_entropy_with_targets_that_are_partly_even(
    seed: int, symbols: int, size: int, smoothing: float
) -> None:
    logits, targets = drawn(seed, symbols, size, torch.float64)
    true, smoothed = _cross_entropy(logits, targets, smoothing)
    even = torch.full((symbols, size), smoothing / size, dtype=torch.float64)
    expected = even + (1 - smoothing) * F.one_hot(targets, size).double()
    real = targets != PAD
    costs = -(expected * logits.log_softmax(1)).sum(1)[real].sum()
    torch.testing.assert_close(smoothed, costs, rtol=1e-12, atol=1e-12)
    (slope,) = torch.autograd.grad(smoothed, logits, retain_graph=True)
    torch.testing.assert_close(slope, (logits.softmax(1) - expected) * real[:, None], rtol=1e-9, atol=1e-12)
    assert true.equal(F.cross_entropy(logits, targets, ignore_index=PAD, reduction="sum"))


def test_its_gradient_is_the_only_tensor_of_this_size_that_going_back_makes() -> None:
    """The log-probabilities have no gradient, so nothing makes zeros for it."""
    logits, targets = drawn(0, 6, 50, torch.float32)
    smoothed, made = _cross_entropy(logits, targets, 0.1)[1], []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if isinstance(result, Tensor) and result.numel() == logits.numel():
                made.append(result.untyped_storage())  # kept, so that none takes the place of another
            return result

    with Watch():
        smoothed.backward()
    assert len({storage.data_ptr() for storage in made}) == 1


@given(st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float64]))
def test_without_it_loss_and_gradient_are_those_of_cross_entropy_bit_for_bit(
    seed: int, dtype: torch.dtype
) -> None:
    logits, targets = drawn(seed, 11, 9, dtype)
    expected = F.cross_entropy(logits, targets, ignore_index=PAD, reduction="sum")
    for loss in _cross_entropy(logits, targets, 0.0):
        assert loss.equal(expected)
        gradients = [torch.autograd.grad(one, logits, retain_graph=True)[0] for one in (loss, expected)]
        assert gradients[0].equal(gradients[1])


@SYSTEMS
@pytest.mark.parametrize("normalization", ["symbols", "sentences"])
def test_every_gradient_is_that_of_pytorchs_smoothing(
    segmenter: dict[str, Any], decoder: dict[str, Any], normalization: str
) -> None:
    training = {"label_smoothing": 0.1, "normalization": normalization}
    model = tiny_model(segmenter, decoder=decoder, training=training)
    batch = collate(PAIRS, shape=(9, 12, 14))  # ragged, with rows of padding
    names, parameters = zip(*model.named_parameters(), strict=True)
    total = model(batch).total
    segments, encoded = model.encode(batch.src, batch.src_lengths)
    decoded = model.decoder(encoded, batch.trg_in, batch.trg_lengths)
    expected = F.cross_entropy(
        decoded.logits.flatten(0, 1),
        batch.trg_out.flatten(),
        ignore_index=PAD,
        reduction="mean" if normalization == "symbols" else "sum",
        label_smoothing=0.1,
    )
    expected = expected if normalization == "symbols" else expected / len(PAIRS)
    expected = expected + segmenter.get("tau", 0.0) * segments.penalty[: len(PAIRS)].mean()
    expected = expected + decoder.get("tau", 0.0) * decoded.penalty[: len(PAIRS)].mean()
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)
    both = (torch.autograd.grad(one, parameters) for one in (total, expected))
    for name, gradient, other in zip(names, *both, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12, msg=name)


def test_what_is_logged_is_the_cross_entropy_of_the_targets_as_they_are() -> None:
    plain, smoothed = (loss_of(PAIRS, label_smoothing=smoothing) for smoothing in (0.0, 0.4))
    assert smoothed.cross_entropy.equal(plain.cross_entropy)
    assert float(plain.total) == pytest.approx(float(plain.cross_entropy / plain.symbols), rel=1e-12)
    assert abs(float(smoothed.total - plain.total)) > 0.01


def test_a_sentence_costs_the_same_alone_and_in_company() -> None:
    settings = {"label_smoothing": 0.3, "normalization": "sentences"}
    together = float(loss_of(PAIRS, (10, 15, 15), **settings).total) * len(PAIRS)
    alone = sum(float(loss_of([pair], **settings).total) for pair in PAIRS)
    assert together == pytest.approx(alone, rel=1e-12)


def test_in_short_floats_the_logarithms_are_still_long() -> None:
    model, batch = tiny_model(training={"label_smoothing": 0.2}).float(), collate(PAIRS)
    expected = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(batch)
    assert (loss.total.dtype, loss.cross_entropy.dtype) == (torch.float32, torch.float32)
    assert not loss.total.equal(expected.total)
    torch.testing.assert_close(loss.total, expected.total, rtol=0.03, atol=0)


def test_a_risk_is_not_smoothed() -> None:
    batch, losses = collate(PAIRS), []
    for smoothing in (0.0, 0.5):
        model = tiny_model(ACT, training={"risk_candidates": 3, "label_smoothing": smoothing})
        losses.append(risk_loss(model, batch, model.segmenter(batch.src, batch.src_lengths), update=1))
    one, other = ({**vars(loss), **loss.counts} for loss in losses)
    assert one.keys() == other.keys()
    assert all(part.equal(other[name]) for name, part in one.items() if name != "counts")
