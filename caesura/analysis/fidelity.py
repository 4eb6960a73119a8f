"""Gradient fidelity: does autograd's gradient know how the loss changes where the text is cut anew?

f(l) is a sentence's loss where the cutter has the logits l, and cuts anew for each l. With z standard normal,
Stein's identity gives the gradient of the mean of f around l without differentiating f:

    d/dl E f(l + s z) = E[f(l + s z) z] / s

Where f is continuous, this equals E[f'(l + s z)], the mean of what autograd says. Where f jumps as a cut
moves, autograd knows nothing of the jump, and the two differ by exactly what the jumps contribute.

If a cutter draws its cuts, its loss is the mean over the draws b, which has no jumps. Its true gradient is
that of the score function, E[f(b) (b - p)]. It is compared with the mean of training's estimates, which take
the place of autograd's gradient. So are the estimates of a cutter that adds noise to its logits in training;
its true gradient is Stein's, with as much noise. B sentences, T source symbols.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from caesura.analysis.losses import Pairs, resting
from caesura.data.batching import Batch
from caesura.inference import Translator
from caesura.layers.masks import positions_mask

GROUPS = 3  # of samples, independent of each other
MOST_BINS, PER_BIN = 10, 10  # bins at most, and positions per bin at least
SURE = 2  # standard errors: a sum has to be so far from 0 for its sign to count


@dataclass(frozen=True)
class Bin:
    """Positions whose gradients in training are similar: the mean of these, and of the true gradients."""

    autograd: float
    truth: float
    error: float | None  # the standard error of `truth`
    positions: float  # a share of one counts as such: the three groups need not put it into one bin


@dataclass(frozen=True)
class Fidelity:
    """How close training's gradient with respect to the scores comes to the true one.

    Fields named `autograd` describe training's gradient, even if training estimates it.

    A positive sum means that higher scores, which make shorter segments, raise the loss: training would make
    segments longer. If scaling keeps the rate of each sentence, no gradient can do so, and sums are None.
    Errors are standard errors over sentences (the jackknife), None where there are too few.
    """

    cosine: float | None  # between the two gradients; None if noise hides the size of one of them
    cosine_error: float | None
    autograd_sum: float | None  # over a sentence's positions, mean over sentences; nats per target symbol
    autograd_sum_error: float | None
    true_sum: float | None
    true_sum_error: float | None
    signs_agree: bool | None  # of the two sums; None where one of them is within two errors of 0
    norm_ratio: float | None  # the length of training's gradient over that of the true one
    bins: list[Bin]
    sentences: int
    positions: int  # gaps that the cutter is free to cut or join
    samples: int  # shifted copies of each sentence, or draws
    sigma: float | None  # standard deviation of the shifts of a logit; None where cuts are drawn
    estimated: bool = False  # whether training estimates its gradient, by drawn cuts or by its own shifts


def fidelity(
    model: Translator,
    batch: Batch,
    samples: int = 96,
    sigma: float = 0.3,
    seed: int = 0,
    progress: Callable[[int], None] = lambda copies: None,
) -> Fidelity:
    """Compare training's gradient of the scores with the true one, by Stein's identity, dropout off.

    Each sentence is cut anew under `samples` shifts of its scores (rounded up to pairs in three groups). They
    depend on the sentence and on `seed` alone. `progress` is called with the number of copies done. If
    training draws cuts, `samples` of them are drawn instead; they depend on the batch and on `seed`. If
    training estimates the gradient by its own shifts, their size is used in place of `sigma`.
    """
    if not isinstance(batch, Batch):
        raise TypeError("fidelity takes a batch, such as model.batch(sources, targets)")
    if not sigma > 0 or not math.isfinite(sigma):
        raise ValueError(f"sigma must be more than 0, not {sigma}")
    if samples < 1:
        raise ValueError(f"samples must be at least 1, not {samples}")
    if not model.segmenter.shiftable:
        raise ValueError(f"{model.segmenter.kind} has no scores that could be shifted")
    pairs = Pairs.of(model, batch)
    free = pairs.inner if batch.src_cuts is None else pairs.inner & (pairs.batch.src_cuts == 0)
    free = free.cpu()
    count = -(-samples // (2 * GROUPS))
    if model.segmenter.draws:
        with resting(model), _seeded(model, seed):
            p, noise, changes = _drawn(pairs, free, 2 * count)
            slopes = _estimated(pairs, count, progress)
        return replace(_compared(noise, changes, slopes * free, free, p * (1 - p)), estimated=True)
    # Training's own shifts reach all gaps, even those that are not free.
    shifted = positions_mask(pairs.batch.src_lengths, free.shape[1]).cpu() if model.segmenter.jitter else free
    noise, sigma = _noise(pairs.batch, shifted, count, seed), model.segmenter.jitter or sigma
    with resting(model), _seeded(model, seed):
        changes, slopes = _sampled(pairs, noise, sigma, progress)
        if model.segmenter.jitter:
            slopes = _estimated(pairs, count)
    compared = _compared(noise, changes, slopes * free, free, torch.ones(()))
    estimated = bool(model.segmenter.jitter)
    result = replace(compared, samples=2 * GROUPS * count, sigma=sigma, estimated=estimated)
    control = model.segmenter.control
    return _without_sums(result) if control is not None and control.by == "scaling" else result


@contextmanager
def _seeded(model: Translator, seed: int) -> Iterator[None]:
    """Draws that follow from the seed, and leave the caller's alone."""
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _without_sums(result: Fidelity) -> Fidelity:
    """If one shift of all scores changes nothing, their sum means nothing."""
    return replace(
        result,
        autograd_sum=None,
        autograd_sum_error=None,
        true_sum=None,
        true_sum_error=None,
        signs_agree=None,
    )


def _noise(batch: Batch, shifted: Tensor, pairs: int, seed: int) -> Tensor:
    """z [3, pairs, B, T], 0 where not `shifted`; float64, the same for a sentence in any company."""
    noise = torch.zeros(GROUPS, pairs, *shifted.shape, dtype=torch.float64)
    for b, (ids, length) in enumerate(zip(batch.src.cpu(), batch.src_lengths.tolist(), strict=True)):
        generator = torch.Generator().manual_seed(zlib.crc32(ids[:length].numpy().tobytes(), seed))
        noise[:, :, b, :length] = torch.randn(GROUPS, pairs, length, generator=generator, dtype=torch.float64)
    return noise * shifted


def _sampled(
    pairs: Pairs, noise: Tensor, sigma: float, progress: Callable[[int], None]
) -> tuple[Tensor, Tensor]:
    """Of each z [3, P, B, T]: (f(l + s z) - f(l - s z)) / 2s [3, P, B]; of groups, mean slopes [3, B, T]."""
    groups, count, B, T = noise.shape
    device, dtype = pairs.batch.src.device, next(pairs.model.parameters()).dtype
    flat, rows = noise.flatten(0, 2), torch.arange(groups * count * B) % B
    changes, slopes = torch.zeros(len(flat), dtype=torch.float64), torch.zeros(groups, B, T).double()
    for both in pairs.chunks(rows.to(device).repeat(2)):
        at = both.cpu() % len(flat)
        sign = torch.where(both.cpu() < len(flat), 1.0, -1.0).double()
        shift = (sigma * sign[:, None] * flat[at]).to(device, dtype)
        losses, slope = pairs.slopes(rows[at].to(device), shift)
        changes.index_add_(0, at, sign * losses.double().cpu() / (2 * sigma))
        group = at // (count * B)
        slopes.index_put_((group, rows[at]), slope.double().cpu() / (2 * count), accumulate=True)
        progress(len(both))
    return changes.view(groups, count, B), slopes


@torch.no_grad()
def _drawn(pairs: Pairs, free: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities p [B, T]; for draws b, b - p [3, P, B, T] and losses less the others' mean [3, P, B]."""
    batch, device, B = pairs.batch, pairs.batch.src.device, len(free)
    scores = pairs.model.segmenter(batch.src, batch.src_lengths, given=batch.src_cuts).scores
    assert scores is not None
    p = scores.double().cpu()
    drawn = torch.rand(GROUPS, count, *free.shape, dtype=torch.float64) < p
    marks = torch.where(free, 2 * drawn.to(torch.int8) - 1, 0).to(torch.int8)
    if pairs.batch.src_cuts is not None:
        marks = torch.where(free, marks, pairs.batch.src_cuts.cpu())
    given, rows = marks.flatten(0, 2).to(device), torch.arange(GROUPS * count * B, device=device) % B
    losses = torch.zeros(len(rows), dtype=torch.float64)
    for at in pairs.chunks(rows):
        losses[at.cpu()] = pairs.losses(rows[at], given[at]).cpu()
    each = losses.view(GROUPS, count, B)
    return p, (drawn.double() - p) * free, (each - each.mean(1, keepdim=True)) * count / (count - 1)


def _estimated(pairs: Pairs, count: int, progress: Callable[[int], None] = lambda copies: None) -> Tensor:
    """[3, B, T]: for each of three groups, the mean of `count` of training's estimates."""
    shape = pairs.batch.src.shape
    getattr(pairs.model.segmenter, "cutter", pairs.model.segmenter).train()  # `resting` puts it back
    slopes, rows = torch.zeros(GROUPS, *shape).double(), torch.arange(GROUPS * count * shape[0]) % shape[0]
    for both in pairs.chunks(rows.to(pairs.batch.src.device), pairs.model.segmenter.cuttings):
        at = both.cpu()
        shift = torch.zeros(len(at), shape[1], dtype=next(pairs.model.parameters()).dtype)
        _, slope = pairs.slopes(rows[at].to(both.device), shift.to(both.device))
        slopes.index_put_((at // (count * shape[0]), rows[at]), slope.double().cpu() / count, accumulate=True)
        progress(2 * len(at))
    return slopes


def _compared(noise: Tensor, changes: Tensor, slopes: Tensor, free: Tensor, variance: Tensor) -> Fidelity:
    """Estimate squared lengths and products from groups that are independent, so that noise does not add up.

    Each group in turn is the control: its mean slope g is taken off what the other two measure, and added
    again, (df - z g / v) z + g with v the `variance` of the noise z, which has the same mean and less noise.
    Given g, the other two are independent.
    """
    products, truths, points = [], [], []
    for control in range(GROUPS):
        g, two = slopes[control], [(control + 1) % GROUPS, (control + 2) % GROUPS]
        rest = changes[two] - (noise[two] * (g / variance.clamp(min=1e-6))).sum(-1)
        true = (g + (rest[..., None] * noise[two]).mean(1)) * free  # [2, B, T]
        a, b = slopes[two]
        terms = torch.stack((a * b, true[0] * true[1], (a * true[1] + b * true[0]) / 2))
        products.append(terms.sum(-1))
        truths.append(true.mean(0))
        points.append(torch.stack((g, (a + b) / 2, true.mean(0)))[:, free])
    by_sentence = torch.stack(products).mean(0)  # [3, B]: |autograd|^2, |truth|^2, their product
    sums = torch.stack((slopes.mean(0), torch.stack(truths).mean(0))).sum(-1)  # [2, B]
    (auto, auto_error), (true_sum, true_error) = (_mean(of) for of in sums)
    total = by_sentence.sum(1)
    return Fidelity(
        cosine=_cosine(total),
        cosine_error=_jackknife(by_sentence),
        autograd_sum=auto,
        autograd_sum_error=auto_error,
        true_sum=true_sum,
        true_sum_error=true_error,
        signs_agree=_agree((auto, auto_error), (true_sum, true_error)),
        norm_ratio=math.sqrt(total[0] / total[1]) if bool((total[:2] > 0).all()) else None,
        bins=_bins(torch.cat(points, 1), int(free.sum())),
        sentences=len(free),
        positions=int(free.sum()),
        samples=GROUPS * noise.shape[1],
        sigma=None,
    )


def _cosine(total: Tensor) -> float | None:
    auto, truth, product = total.tolist()
    return product / math.sqrt(auto * truth) if auto > 0 and truth > 0 else None


def _jackknife(by_sentence: Tensor) -> float | None:
    """The cosine's standard error, from the cosines without each of the sentences [3, B]."""
    count = by_sentence.shape[1]
    without = [_cosine(total) for total in (by_sentence.sum(1, keepdim=True) - by_sentence).T]
    cosines = torch.tensor([cosine for cosine in without if cosine is not None], dtype=torch.float64)
    if count < 2 or len(cosines) < count:
        return None
    return math.sqrt((count - 1) * float(cosines.var(correction=0)))


def _mean(values: Tensor) -> tuple[float, float | None]:
    """The mean with its standard error."""
    count = len(values)
    return float(values.mean()), float(values.std() / math.sqrt(count)) if count > 1 else None


def _agree(*sums: tuple[float, float | None]) -> bool | None:
    if any(error is None or abs(value) <= SURE * error for value, error in sums):
        return None
    return len({value > 0 for value, _ in sums}) == 1


def _bins(points: Tensor, positions: int) -> list[Bin]:
    """Positions in the order of one group's slopes, with the means of the other two groups: [3, N] points."""
    count = min(MOST_BINS, positions // PER_BIN)
    if not count:
        return []
    order, bins = points[0].argsort(), []
    for part in order.tensor_split(count):
        size = len(part) / GROUPS  # each position comes once per group
        auto, truth = points[1:, part]
        error = float(truth.std() / math.sqrt(size)) if len(part) > 1 else None
        bins.append(Bin(float(auto.mean()), float(truth.mean()), error, size))
    return bins
