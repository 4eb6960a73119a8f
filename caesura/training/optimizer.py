"""Adam as the config asks for it, with weight decay where it does good."""

from __future__ import annotations

from typing import Any

from torch import nn

from caesura.config import Training
from caesura.kernels.adam import Adam


def build_adam(model: nn.Module, settings: Training) -> Adam:
    """Adam with decoupled weight decay: an update first takes rate * `weight_decay` of each weight away.

    Biases, norms and embeddings keep theirs: see `decaying`.
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

    Decay reaches a row of a table at every update, its gradient only where the symbol occurs: rare symbols
    would lose what they have learned. A table that is also the output layer stays an embedding table.
    """
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    return [p for p in model.parameters() if p.dim() > 1 and all(p is not table for table in tables)]
