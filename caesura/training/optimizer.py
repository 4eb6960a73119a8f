"""Adam as configured, with weight decay only for weights that should have it."""

from __future__ import annotations

from typing import Any

from torch import nn

from caesura.config import Training
from caesura.kernels.adam import Adam


def build_adam(model: nn.Module, settings: Training) -> Adam:
    """Adam with decoupled weight decay: an update first subtracts rate * `weight_decay` of each weight.

    Biases, norms and embeddings do not decay: see `decaying`.
    """
    groups: list[dict[str, Any]] = [{"params": [*model.parameters()]}]
    if settings.weight_decay:  # else one group, in the order of earlier checkpoints
        weights = decaying(model)
        others = [p for p in model.parameters() if all(p is not weight for weight in weights)]
        groups = [{"params": weights, "weight_decay": settings.weight_decay}, {"params": others}]
    first, second = settings.adam_betas
    return Adam(
        groups,
        lr=settings.learning_rate,
        betas=(first, second),
        fused=True,
        decoupled_weight_decay=True,
    )


def decaying(model: nn.Module) -> list[nn.Parameter]:
    """The matrices of a model, embedding tables excepted.

    Decay would shrink a table's row at every update, but its gradient comes only when the symbol occurs. So
    rare symbols would lose what they have learned. A table that is also the output layer counts as an
    embedding table.
    """
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    return [p for p in model.parameters() if p.dim() > 1 and all(p is not table for table in tables)]
