"""Help for training deep recurrent stacks: sums, norms and dropout around layers, and initial weights.

B sentences, S positions, D features. Nothing here is inside a recurrence, so it works with every kernel of a
GRU.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from caesura.layers.checks import check_shares
from caesura.layers.masks import positions_mask


class SentenceDropout(nn.Dropout):
    """Dropout with one mask per sentence, the same at all its positions (Gal & Ghahramani 2016)."""

    def forward(self, states: Tensor) -> Tensor:
        """[B, S, D]."""
        if not self.training:
            return states
        return states * super().forward(states.new_ones(len(states), 1, states.shape[2]))


def dropout_layer(share: float, by_sentence: bool) -> nn.Dropout:
    """A new layer that drops this share of the features, drawn per position or once per sentence."""
    check_shares(dropout=share)
    if by_sentence and not share:
        raise ValueError("variational needs a dropout above 0")
    return SentenceDropout(share) if by_sentence else nn.Dropout(share)


class Depth(nn.Module):
    """Sums and norms around the layers of a stack: from the second on, x becomes x + layer(norm(x)).

    The norm comes before the layer (Xiong et al. 2020), and once more at the top, because a sum grows with
    each layer. The first layer has neither: it alone changes the number of features.
    """

    def __init__(self, size: int, num_layers: int, residual: bool, norm: bool) -> None:
        super().__init__()
        if not 1 <= num_layers <= 64:
            raise ValueError(f"num_layers must be 1 to 64, not {num_layers}")
        if residual and num_layers == 1:
            raise ValueError("residual needs num_layers of at least 2: the first layer changes the size")
        self.residual = residual
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(num_layers if norm else 0))

    def before(self, layer: int, states: Tensor) -> Tensor:
        """The input of a layer, counted from 0."""
        normed: Tensor = self.norms[layer - 1](states) if layer and self.norms else states
        return normed

    def after(self, layer: int, states: Tensor, made: Tensor) -> Tensor:
        """The input of the next layer, from what a layer read (`states`) and returned (`made`)."""
        return states + made if self.residual and layer else made

    def top(self, states: Tensor, lengths: Tensor) -> Tensor:
        """The result of the stack, zero on padding."""
        if not self.norms:
            return states
        padding = ~positions_mask(lengths, states.shape[1])[..., None]
        return self.norms[-1](states).masked_fill(padding, 0)


def make_orthogonal(layers: Iterable[nn.Module]) -> None:
    """Draw the recurrent weights of GRUs anew: an orthogonal matrix for each gate (Saxe et al. 2014)."""
    for layer in layers:
        weight = layer.get_parameter("weight_hh_l0")
        if not weight.is_meta:
            with torch.no_grad():
                for gate in weight.chunk(3):
                    nn.init.orthogonal_(gate)
