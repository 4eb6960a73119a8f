"""ACT-DEC's parameters inside the loop, and the products of them that a fast loop multiplies with.

H size of the outer state, A of the ACT state, E of the attention, M of the encoder's states.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor


class ActDecoderWeights(NamedTuple):
    """The parameters inside the loop."""

    query: Tensor  # [E, H]
    energy: Tensor  # [1, E]          v
    context: Tensor  # [3H, M]        from the context to the outer gates
    outer_hh: Tensor  # [3H, H]       R
    outer_bias: Tensor  # [3H]
    inner_context: Tensor | None  # [3A, M] from it to the inner gates; None: they do not read it
    inner_hh: Tensor  # [3A, A]       S
    inner_bias: Tensor  # [3A]
    halting_weight: Tensor  # [1, A]
    halting_bias: Tensor  # [1]
    enter_weight: Tensor | None  # [A, H]   P: outer state to ACT state; None: the identity
    enter_bias: Tensor | None  # [A]
    leave_weight: Tensor | None  # [H, A]   Q: ACT state to outer state; None: the identity
    leave_bias: Tensor | None  # [H]

    @classmethod
    def of(cls, weights: Iterable[Tensor | None]) -> ActDecoderWeights:
        """From a list of tensors in this order."""
        return cls(**dict(zip(cls._fields, weights, strict=True)))  # type: ignore[arg-type]

    def to(self, dtype: torch.dtype) -> ActDecoderWeights:
        """All of them in `dtype`."""
        return self.of(None if weight is None else weight.to(dtype) for weight in self)


class Leaving(NamedTuple):
    """Q multiplied with the weights that read it: from a mean to the outer cell and to the attention."""

    weight: Tensor  # [3H + E (+ H), A]  R Q, query Q, Q; the last not where Q is the identity
    bias: Tensor  # [3H + E (+ H)]

    @classmethod
    def of(cls, weights: ActDecoderWeights) -> Leaving:
        """The products of these weights."""
        Q, b_Q, both = weights.leave_weight, weights.leave_bias, torch.cat((weights.outer_hh, weights.query))
        bias = torch.cat((weights.outer_bias, both.new_zeros(len(weights.query))))
        if Q is None or b_Q is None:
            return cls(both, bias)
        return cls(torch.cat((both @ Q, Q)), torch.cat((torch.addmv(bias, both, b_Q), b_Q)))

    def split(self, H: int, E: int) -> list[tuple[Tensor, Tensor]]:
        """The blocks one by one, each with its bias."""
        sizes = (3 * H, E, H)[: 2 + (len(self.bias) > 3 * H + E)]
        return [*zip(self.weight.split(sizes), self.bias.split(sizes), strict=True)]

    def back(
        self, weights: ActDecoderWeights, first: Tensor, outer: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """The gradients of the weights, by name, and that of the first outer state [B, H].

        `self` holds those of the products from the second step on, `first` [B, 4H + E] those of what the
        first step took from the outer state itself: the same projections, and the state.
        """
        H, E, Q, b_Q = outer.shape[1], len(weights.query), weights.leave_weight, weights.leave_bias
        both, grads = torch.cat((weights.outer_hh, weights.query)), {}
        of_both, of_bias, first_both = self.weight[: len(both)], self.bias[: 3 * H], first[:, : len(both)]
        if Q is not None and b_Q is not None:
            of_mapped, mapped_bias = of_both, self.bias[: len(both)]
            grads["leave_weight"] = torch.addmm(self.weight[len(both) :], both.t(), of_mapped)
            grads["leave_bias"] = torch.addmv(self.bias[len(both) :], both.t(), mapped_bias)
            of_both = torch.outer(mapped_bias, b_Q).addmm_(of_mapped, Q.t())
        grads["outer_hh"], grads["query"] = of_both.addmm(first_both.t(), outer).split((3 * H, E))
        grads["outer_bias"] = of_bias + first[:, : 3 * H].sum(0)
        return grads, torch.addmm(first[:, len(both) :], first_both, both)


class Entering(NamedTuple):
    """P multiplied with the weights that read it: from an outer state to the first inner step."""

    weight: Tensor  # [4A, H]  S P, P
    bias: Tensor  # [4A]

    @classmethod
    def of(cls, weights: ActDecoderWeights) -> Entering:
        """The products of these weights."""
        S, P, b_P = weights.inner_hh, weights.enter_weight, weights.enter_bias
        if P is None or b_P is None:
            eye, zeros = torch.eye(S.shape[1], dtype=S.dtype, device=S.device), S.new_zeros(S.shape[1])
            return cls(torch.cat((S, eye)), torch.cat((weights.inner_bias, zeros)))
        return cls(torch.cat((S @ P, P)), torch.cat((torch.addmv(weights.inner_bias, S, b_P), b_P)))

    def back(self, weights: ActDecoderWeights) -> dict[str, Tensor]:
        """The gradients of the weights, by name, where `self` holds those of the products."""
        S, P, b_P = weights.inner_hh, weights.enter_weight, weights.enter_bias
        (of_SP, of_P), (bias, of_b_P) = (part.split((len(S), len(part) - len(S))) for part in self)
        if P is None or b_P is None:
            return {"inner_hh": of_SP, "inner_bias": bias}
        return {
            "inner_hh": torch.outer(bias, b_P).addmm_(of_SP, P.t()),
            "inner_bias": bias,
            "enter_weight": torch.addmm(of_P, S.t(), of_SP),
            "enter_bias": torch.addmv(of_b_P, S.t(), bias),
        }
