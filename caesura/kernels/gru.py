"""A GRU step in PyTorch's form (reset gate after the product), and its derivatives for a whole sequence."""

from __future__ import annotations

import torch
from torch import Tensor


def gru_step(inputs: Tensor, hidden: Tensor, s: Tensor) -> Tensor:
    """nn.GRUCell with W_ih x + b_ih (`inputs`) and W_hh s + b_hh (`hidden`), both [..., 3H], given."""
    size = s.shape[-1]
    i_rz, i_n = inputs.split((2 * size, size), -1)
    h_rz, h_n = hidden.split((2 * size, size), -1)
    r, z = torch.sigmoid(i_rz + h_rz).chunk(2, -1)
    n = torch.tanh(i_n + r * h_n)
    return n + z * (s - n)


def gru_slopes(gates: Tensor, n: Tensor, before: Tensor, extra: int = 0) -> Tensor:
    """[T, B, 4H + extra]: the factors from a new state's gradient to those of its gates.

    `gates` [T, B, >= 3H] holds r, z and W_hn s + b_hn; `before` [T, B, H] is s. In the order n, r, z, n * r:
    the first three blocks are for the input projections, the last three for the hidden projections. The
    `extra` columns are left unset, for whatever else is multiplied with s.
    """
    size = n.shape[2]
    r, z, h_n = gates[:, :, : 3 * size].split(size, 2)
    slopes = n.new_empty(*n.shape[:2], 4 * size + extra)
    of_n, of_r, of_z, of_nr = slopes[:, :, : 4 * size].split(size, 2)
    torch.addcmul(n.new_ones(()), n, n, value=-1, out=of_n).addcmul_(of_n, z, value=-1)  # (1 - n n)(1 - z)
    torch.mul(of_n, r, out=of_nr)
    torch.mul(of_nr, h_n, out=of_r).addcmul_(of_r, r, value=-1)
    torch.sub(before, n, out=of_z).mul_(z).addcmul_(of_z, z, value=-1)
    return slopes


def in_gate_order(rows: Tensor, dim: int) -> Tensor:
    """The first three blocks of `gru_slopes`, n r z along `dim`, as PyTorch orders gates: r z n."""
    return rows.roll(-(rows.shape[dim] // 3), dim)
