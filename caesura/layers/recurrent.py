"""GRU layers over padded sequences, in one direction or both, on the project's kernels.

B sentences, S positions, D features, H hidden size. Weights live in PyTorch's own `nn.GRU` modules.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.kernels import pick
from caesura.kernels.gru_layer import gru_layer
from caesura.layers.masks import positions_mask

# Tables of at most so many rows are read by a one-hot product, whose gradient is a product and not a sort.
ONE_HOT = 1024


def gru(
    states: Tensor,
    lengths: Tensor,
    ahead: nn.Module,
    back: nn.Module | None = None,
    symbols: Tensor | None = None,
    drop: float = 0.0,
) -> Tensor:
    """[B, S, H] from states [B, S, D]; with `back`, which reads from the last to the first, [B, S, 2H].

    `drop` is the share of the recurrent weights that are left out, the same ones at all positions.

    With `symbols` [B, S], `states` is a table [V, D], whose rows they name. Padding is at the end of a
    sequence, must be finite in `states`, and comes out as zeros.
    """
    shape = states.shape[:2] if symbols is None else symbols.shape
    if not shape.numel():  # nothing to read, which PyTorch's GRU refuses
        width = ahead.get_parameter("weight_hh_l0").shape[1]
        return states.new_zeros(*shape, width if back is None else 2 * width)
    choice, _ = pick(states.device, "gru_layer", states)
    # Nothing that we tried on a CPU was faster than PyTorch's own GRU for training and translation alike,
    # and autocast treats it as one operation.
    whole = choice == "reference" and torch.is_autocast_enabled(states.device.type)
    kernels = choice != "fused" and not whole
    if symbols is not None and not (kernels and len(states) <= min(ONE_HOT, symbols.numel())):
        # Zeros on padding: not even NaN may reach a gradient from there.
        padding = ~positions_mask(lengths, symbols.shape[1])
        states, symbols = F.embedding(symbols, states).masked_fill(padding[..., None], 0), None
    directions = [ahead] if back is None else [ahead, back]
    if not kernels:
        return _by_pytorch(states, lengths, drop, *directions)
    return _by_kernels(states, lengths, symbols, directions, drop)


def _by_kernels(
    states: Tensor,
    lengths: Tensor,
    symbols: Tensor | None,
    directions: Sequence[nn.Module],
    drop: float,
) -> Tensor:
    """All directions at once, from one product with all input weights."""
    weight_ih, bias_ih, weight_hh, bias_hh = (
        torch.stack([direction.get_parameter(f"{name}_l0") for direction in directions])
        for name in ("weight_ih", "bias_ih", "weight_hh", "bias_hh")
    )
    if symbols is not None:
        rows = torch.arange(-(-len(states) // 8) * 8, device=states.device)
        named = symbols[..., None] == rows  # [B, S, V]
        # A product reads all rows: those that padding alone names must not bring NaN into it.
        used = (named & positions_mask(lengths, symbols.shape[1])[..., None]).flatten(0, 1).any(0)
        states = states.masked_fill(~used[: len(states), None], 0)
    # The matrix units are fast where a row is a multiple of 16 bytes, which 620 bfloat16 are not.
    spare = -states.shape[-1] % 8
    if spare:
        states, weight_ih = F.pad(states, (0, spare)), F.pad(weight_ih, (0, spare))
    inputs = F.linear(states, weight_ih.flatten(0, 1), bias_ih.flatten())
    if symbols is not None:
        inputs = named.to(inputs.dtype) @ F.pad(inputs, (0, 0, 0, len(rows) - len(inputs)))
    weight_hh = thinned(weight_hh, drop)
    return gru_layer(inputs.unflatten(2, (len(directions), -1)), lengths, weight_hh, bias_hh)


def _by_pytorch(
    states: Tensor, lengths: Tensor, drop: float, ahead: nn.Module, back: nn.Module | None = None
) -> Tensor:
    """PyTorch's own GRU, one direction at a time: the backward one reads mirrored sentences."""
    output, mask = _whole(ahead, states, drop), positions_mask(lengths, states.shape[1])
    if back is not None:
        steps = torch.arange(states.shape[1], device=states.device)
        mirror = torch.where(mask, lengths[:, None] - 1 - steps, steps)
        output = torch.cat((output, _pick(_whole(back, _pick(states, mirror), drop), mirror)), 2)
    return output.masked_fill(~mask[..., None], 0)


def thinned(weights: Tensor, share: float) -> Tensor:
    """Weights of which a share is left out (Merity et al. 2018)."""
    return F.dropout(weights, share) if share else weights


def _whole(layer: nn.Module, states: Tensor, drop: float) -> Tensor:
    """One direction, from the first position to the last."""
    if not drop:
        made: Tensor = layer(states)[0]
        return made
    weights = {"weight_hh_l0": thinned(layer.get_parameter("weight_hh_l0"), drop)}
    made = torch.func.functional_call(layer, weights, (states,))[0]
    return made


def _pick(states: Tensor, positions: Tensor) -> Tensor:
    """[B, S, D] in the order of `positions` [B, S]."""
    return states.gather(1, positions[..., None].expand(-1, -1, states.shape[2]))


def gru_flops(inputs: int, hidden: int) -> int:
    """Floating-point operations of one GRU step: three gates, each multiplies the input and the state."""
    return 2 * 3 * hidden * (inputs + hidden)
