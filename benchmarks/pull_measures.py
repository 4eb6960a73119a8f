"""What the halting unit of an ACT-ENC is told by its gradient, and what comes of following it."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from caesura.data.batching import Batch
from caesura.inference import Translator
from caesura.kernels.gru import gru_step
from caesura.layers.masks import positions_mask
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.base import Cuts, Segments
from caesura.segmenters.rate import count_cuts

SHIFTS = (-1.5, -1, -0.6, -0.3, -0.1, 0.1, 0.3, 1)  # of b_h
DISTANCES = (1, 2, 3, 4, 8, 16, 1000)  # symbols before the segment's last
LAST_WEIGHTS = (0, 0.05, 0.1, 0.2, 0.4, 1.01)  # of the segment's last symbol


def segment(
    layer: ActSegmenter, batch: Batch, nudges: Tensor | None = None, ends: Tensor | None = None
) -> Segments:
    """Algorithm 1 with `nudges` [2, B, T] added to h: in what is emitted, in what is carried on.

    `ends` [B, T] are cuts to keep; without, they are where the sum of h, as it is emitted, says.
    """
    real = positions_mask(batch.src_lengths, batch.src.shape[1])
    last = real & ~positions_mask(batch.src_lengths - 1, batch.src.shape[1])
    s = layer.cell.weight_hh.new_zeros(len(real), layer.cell.hidden_size)
    H, means = s.new_zeros(2, len(s)), s.new_zeros(2, *s.shape)
    rows: list[tuple[Tensor, ...]] = []
    inputs = F.linear(layer.embedding(batch.src), layer.cell.weight_ih, layer.cell.bias_ih)
    for t, x in enumerate(inputs.unbind(1)):
        new = gru_step(x, F.linear(s, layer.cell.weight_hh, layer.cell.bias_hh), s)
        h = torch.sigmoid(layer.halting(new)).squeeze(1) + (0 if nudges is None else nudges[..., t])
        h = h.expand(2, -1) * real[:, t]
        f = ((H + h)[0] >= 1 - layer.epsilon) & real[:, t] | last[:, t] if ends is None else ends[:, t]
        p = torch.where(f, 1 - H, h)
        means = means + p[..., None] * new
        rows.append((means[0], f, p[0]))
        s = torch.where(f[:, None], means[1], new)
        H, means = (H + h) * ~f, means * ~f[:, None]
    outputs, ends, weights = (torch.stack(column, 1) for column in zip(*rows, strict=True))
    vectors = [layer.output(row[f]) for row, f in zip(outputs, ends, strict=True)]
    vectors = pad_sequence(vectors, batch_first=True)
    counts, nothing = ends.sum(1), s.new_zeros(len(s))  # of what the loss does not ask for, but its log does
    cuts = Cuts(ends, weights, counts.max(), losses={"penalty": nothing}, live=real & ~ends)
    return Segments(vectors, counts, cuts)


def score_gradients(model: Translator, batch: Batch) -> tuple[Segments, Tensor]:
    """The segments, and dCE/dh [2, B, T] with the cuts as they are: as emitted and as carried on."""
    nudges = model.segmenter.output.weight.new_zeros(2, *batch.src.shape, requires_grad=True)
    segments = segment(model.segmenter, batch, nudges)
    [gradient] = torch.autograd.grad(model.loss(batch, segments).cross_entropy, nudges)
    return segments, gradient


def places(segments: Segments) -> tuple[Tensor, Tensor]:
    """[B, T] each: symbols to the end of the segment (on padding 0), and the weight of its last."""
    T = segments.ends.shape[1]
    at = torch.arange(T).where(segments.ends, T).flip(1).cummin(1).values.flip(1)
    left = (at - torch.arange(T)).masked_fill(at == T, 0)
    return left, segments.weights.detach().gather(1, at.clamp(max=T - 1))


def measure(model: Translator, batch: Batch, shifted: bool) -> dict[str, float]:
    """Means over the batch's symbols inside segments: all, by distance from the end, by its weight."""
    segments, (emitted, carried) = score_gradients(model, batch)
    left, last = places(segments)
    inside = left > 0
    forced = left + torch.arange(left.shape[1]) == batch.src_lengths[:, None] - 1  # by </s>, whatever h is
    groups = {"": inside, "forced": inside & forced, "own": inside & ~forced}
    groups |= {f"distance {a}": inside & (left >= a) & (left < b) for a, b in pairwise(DISTANCES)}
    groups |= {f"weight {a}": inside & ~forced & (last >= a) & (last < b) for a, b in pairwise(LAST_WEIGHTS)}
    halts = segments.ends & ~forced
    record = {"last_weight": last[halts].mean().item()} if halts.any() else {}
    for name, chosen in groups.items():
        if chosen.any():
            parts = {"emitted": emitted[chosen], "carried": carried[chosen]}
            parts["total"] = parts["emitted"] + parts["carried"]
            parts["above"] = (parts["total"] > 0).float()
            record |= {f"{part} {name}".strip(): values.mean().item() for part, values in parts.items()}
    return record | (shifts(model, batch, segments.ends) if shifted else {})


@torch.no_grad()
def shifts(model: Translator, batch: Batch, ends: Tensor) -> dict[str, float]:
    """By the shift of b_h: how many times as long segments get; the change of CE, cut anew and as before."""
    layer, record = model.segmenter, {}
    was, symbols = layer.halting.bias.clone(), batch.trg_lengths.sum()
    before = model(batch).cross_entropy
    for shift in SHIFTS:
        layer.halting.bias.copy_(was + shift)
        anew, held = (segment(layer, batch, ends=cuts) for cuts in (None, ends))
        cuts = [count_cuts(way, batch.src_lengths)[1] for way in (anew.ends, ends)]
        record[f"longer {shift}"] = (cuts[1] / cuts[0]).item()
        for name, way in (("anew", anew), ("held", held)):
            record[f"{name} {shift}"] = ((model.loss(batch, way).cross_entropy - before) / symbols).item()
    layer.halting.bias.copy_(was)
    return record
