"""MLP attention (Bahdanau et al. 2015): v . tanh(W query + U memory), without biases."""

from __future__ import annotations

from torch import Tensor, nn

from caesura.kernels.attention_decoder import Sigmoids
from caesura.kernels.attention_step import attend_in_blocks, attend_reference
from caesura.layers.checks import check_sizes


class MlpAttention(nn.Module):
    """Weighs the encoder's states by how well they answer a query."""

    def __init__(self, query_dim: int, memory_dim: int, attention_size: int) -> None:
        super().__init__()
        check_sizes(attention_size=attention_size)
        self.query = nn.Linear(query_dim, attention_size, bias=False)
        self.key = nn.Linear(memory_dim, attention_size, bias=False)
        self.energy = nn.Linear(attention_size, 1, bias=False)

    def forward(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, sigmoids: Sigmoids | None = None
    ) -> tuple[Tensor, Tensor]:
        """Context [B, K, M] and weights [B, K, S] for query [B, K, D], keys [B, S, A], values [B, S, M].

        The hypotheses of a sentence share its keys and values. With the keys' `sigmoids` it is fast on a CPU,
        and has no gradient.
        """
        projected = self.query(query)
        if sigmoids is None:
            return attend_reference(projected, keys, values, mask, self.energy.weight)
        return attend_in_blocks(projected, keys, values, mask, self.energy.weight, sigmoids)
