"""Cross-entropy with label smoothing, whose gradient passes few times over what may be a large vocabulary."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class Smoothed(torch.autograd.Function):
    """Of logits [N, V], targets [N], 0 where these are `ignored`, and the share spread over all of V: [N].

    The log-probabilities [N, V] come with it, without a gradient. Autograd would make a gradient of this size
    for the target, another for the share, and their sum.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, targets: Tensor, share: float, ignored: int
    ) -> tuple[Tensor, Tensor]:
        """The costs and the log-probabilities."""
        logs = F.log_softmax(logits, 1)
        exact, even = -logs.gather(1, targets[:, None]).squeeze(1), -logs.mean(1)
        ctx.save_for_backward(logs, targets)
        ctx.share, ctx.ignored = share, ignored
        ctx.mark_non_differentiable(logs)
        ctx.set_materialize_grads(False)  # else zeros [N, V] would be made as the gradient of `logs`
        costs = (1 - share) * exact + share * even
        return costs.masked_fill(targets == ignored, 0), logs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, outer: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        """The probabilities, less those that are wanted, times the gradient of the cost."""
        logs, targets = ctx.saved_tensors
        outer = outer.masked_fill(targets == ctx.ignored, 0)[:, None]
        gradient = logs.exp().sub_(ctx.share / logs.shape[1]).mul_(outer)
        return gradient.scatter_add_(1, targets[:, None], (ctx.share - 1) * outer), None, None, None
