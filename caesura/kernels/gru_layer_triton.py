"""A GRU layer on a GPU: one Triton kernel per step, each way, for all directions.

A kernel multiplies the states of the step before (on the way back, the gradients of the gates of the step
after) and has the gates in the same launch. What the steps need not wait for (all gradients of weights) comes
after the loop, over all steps at once.

B sentences, S positions, N directions, H hidden size, W hidden size rounded up to whole tiles.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from caesura.kernels import launch
from caesura.kernels.gru_kernels_triton import advance, advance_back
from caesura.kernels.launch import Launch, padded, product
from caesura.kernels.precision import working_dtype


def unsupported(inputs: Tensor) -> str | None:
    """Why these arguments of `gru_layer` are not for `TritonGruLayer`; None if they are."""
    reason = launch.unsupported(inputs.device, working_dtype(inputs), torch.float32, torch.bfloat16)
    return reason or (None if inputs.numel() else "there is nothing to read")


def layer(inputs: Tensor, lengths: Tensor, weight_hh: Tensor, bias_hh: Tensor) -> Tensor:
    """As `gru_layer`; under bfloat16 autocast products take bfloat16, the carried state stays float32."""
    keep = torch.is_grad_enabled() and any(a.requires_grad for a in (inputs, weight_hh, bias_hh))
    return TritonGruLayer.apply(inputs, lengths, weight_hh, bias_hh, keep)


class Tile(NamedTuple):
    """The part of a [B, H] product that one program computes, and its depth, stages and warps."""

    rows: int
    columns: int
    depth: int
    stages: int
    warps: int

    def within(self, widest: int) -> Tile:
        """No wider and no deeper than that."""
        return self._replace(columns=min(self.columns, widest), depth=min(self.depth, widest))


# Up to so many sentences, the tile of the way forward and that of the way back: those that were fastest of a
# few dozen on an H200 at the paper's hidden size.
TILES = {
    torch.bfloat16: (
        (64, Tile(16, 32, 128, 4, 4), Tile(64, 16, 64, 3, 4)),
        (128, Tile(64, 16, 64, 6, 4), Tile(64, 16, 64, 3, 4)),
        (256, Tile(64, 32, 64, 4, 8), Tile(64, 32, 64, 3, 4)),
        (math.inf, Tile(64, 64, 32, 4, 8), Tile(64, 64, 64, 3, 8)),
    ),
    torch.float32: (
        (256, Tile(16, 32, 64, 3, 4), Tile(16, 32, 64, 2, 4)),
        (math.inf, Tile(64, 32, 32, 3, 4), Tile(64, 32, 32, 2, 4)),
    ),
}


def tiles(B: int, H: int, dtype: torch.dtype) -> tuple[Tile, Tile]:
    """The tile of the forward pass and that of the backward pass."""
    _, ahead, back = next(choice for choice in TILES[dtype] if choice[0] >= B)
    widest = padded(H)
    return ahead.within(widest), back.within(widest)


class TritonGruLayer(torch.autograd.Function):
    """`gru_layer_reference` in float32 or bfloat16."""

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, lengths: Tensor, weight_hh: Tensor, bias_hh: Tensor, keep: bool
    ) -> Tensor:
        """Go through the steps, into buffers that the gradient will need."""
        (B, S, N), H, dtype = inputs.shape[:3], weight_hh.shape[2], working_dtype(inputs)
        both = tiles(B, H, dtype)
        whole = max(max(tile.columns, tile.depth) for tile in both)
        W, slots = triton.cdiv(H, whole) * whole, S + 1 if keep else 2
        with torch.autocast(inputs.device.type, enabled=False):
            weight = inputs.new_zeros(N, 3, W, W, dtype=dtype)
            weight[..., :H, :H] = weight_hh.unflatten(1, (3, H))
            state = inputs.new_zeros(N, B, W, dtype=torch.float32)
            steps = inputs.new_empty(N, slots, B, W, dtype=dtype)
            steps[:, 0] = 0
            gates = inputs.new_empty(N, S if keep else 0, B, 4, W, dtype=dtype)
            states = inputs.new_empty(B, S, N * H, dtype=dtype)
            read = inputs.to(dtype).contiguous(), lengths.contiguous(), weight, bias_hh.float().contiguous()
            step = _launch(advance, both[0], (*read, state, steps, gates, states, B, S, slots, N, H, W, keep))
            for t in range(S):
                step(t)
        ctx.save_for_backward(lengths, weight, steps, gates)
        ctx.tile, ctx.size = both[1], H
        return states.to(inputs.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_states: Tensor) -> tuple[Tensor | None, ...]:
        """From the gradient of the states to those of all inputs."""
        lengths, weight, steps, gates = ctx.saved_tensors
        (N, S, B, _, W), H, dtype = gates.shape, ctx.size, steps.dtype
        with torch.autocast(steps.device.type, enabled=False):
            kept = steps.new_zeros(N, B, W, dtype=torch.float32)
            of_hidden, of_inputs = steps.new_empty(N, S, B, 3, W), steps.new_empty(B, S, N, 3 * H)
            turned = weight.permute(0, 3, 1, 2).contiguous()  # a product reads along its depth
            read = of_states.to(dtype).contiguous(), lengths.contiguous(), turned, steps, gates
            step = _launch(advance_back, ctx.tile, (*read, kept, of_hidden, of_inputs, B, S, N, H, W))
            for t in range(S - 1, -1, -1):
                step(t)
            rows = of_hidden.view(N, S * B, 3 * W)
            of_weight = product(rows.transpose(1, 2), steps[:, :-1].reshape(N, S * B, W))
            of_bias = rows.sum(1, dtype=torch.float32)
        of_weight = of_weight.view(N, 3, W, W)[..., :H, :H].reshape(N, 3 * H, H)
        return of_inputs, None, of_weight, of_bias.view(N, 3, W)[..., :H].reshape(N, 3 * H), None


def _launch(kernel: Any, tile: Tile, args: tuple[Any, ...]) -> Launch:
    """A kernel for its arguments up to the tile's; the second are the lengths, the third the weights."""
    lengths, W = args[1], args[2].shape[-1]
    # Older GPUs cannot begin a launch before the one before it has ended.
    overlap = lengths.is_cuda and torch.cuda.get_device_capability(lengths.device) >= (9, 0)
    grid = W // tile.columns, triton.cdiv(len(lengths), tile.rows), len(args[2])
    return Launch(kernel, grid, (*args, *tile[:4], overlap), tile.warps, overlap)
