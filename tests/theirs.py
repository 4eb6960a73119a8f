"""PyTorch's own Transformer layers with the weights of ours, and the operations of linear layers."""

from typing import Any

import torch
from torch import Tensor, nn

from caesura.layers.transformer import Block

ROWS = {"weight": "in_proj_weight", "bias": "in_proj_bias"}


def named(block: Block) -> dict[str, list[str]]:
    """Their parameters, each with ours whose rows it has."""
    names = {
        **{f"self_attn.{ROWS[end]}": [f"attention.inputs.{end}"] for end in ROWS},
        **{f"self_attn.out_proj.{end}": [f"attention.output.{end}"] for end in ROWS},
        **{f"linear1.{end}": [f"feed.0.{end}"] for end in ROWS},
        **{f"linear2.{end}": [f"feed.2.{end}"] for end in ROWS},
    }
    norms = ["attention_norm", "feed_norm"]
    if hasattr(block, "cross"):
        norms.insert(1, "cross_norm")
        names |= {f"multihead_attn.{ROWS[e]}": [f"cross.query.{e}", f"cross.memory.{e}"] for e in ROWS}
        names |= {f"multihead_attn.out_proj.{e}": [f"cross.output.{e}"] for e in ROWS}
    return names | {f"norm{i}.{end}": [f"{norm}.{end}"] for i, norm in enumerate(norms, 1) for end in ROWS}


def layer(block: Block, kind: type[nn.Module]) -> nn.Module:
    """An nn.TransformerEncoderLayer or -DecoderLayer with the weights of a block."""
    size, heads = block.feed_norm.normalized_shape[0], block.attention.heads
    ours = dict(block.named_parameters())
    assert sorted(ours) == sorted(name for names in named(block).values() for name in names)
    made = kind(size, heads, len(ours["feed.0.bias"]), 0.0, batch_first=True, norm_first=True)
    theirs = made.to(ours["feed.0.bias"].dtype)
    weights = {name: torch.cat([ours[part] for part in parts]) for name, parts in named(block).items()}
    theirs.load_state_dict(weights)
    return theirs


def gradients(block: Block, theirs: nn.Module) -> list[tuple[str, Tensor, Tensor]]:
    """For each of their parameters its name, our gradient and theirs."""
    ours, other = dict(block.named_parameters()), dict(theirs.named_parameters())
    return [
        (name, torch.cat([ours[n].grad for n in names]), other[name].grad)
        for name, names in named(block).items()
    ]


def products(module: nn.Module, *inputs: Any) -> int:
    """The operations of all linear layers in a call."""
    counted: list[int] = []
    for part in module.modules():
        if isinstance(part, nn.Linear):
            part.register_forward_hook(lambda _, x, y: counted.append(2 * x[0].numel() * y.shape[-1]))
    module(*inputs)
    return sum(counted)
