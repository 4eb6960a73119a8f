"""Small ACT decoders of every kind, and what they read."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from caesura.data.vocabulary import BOS, EOS
from caesura.decoders.act import ActDecoder
from caesura.encoders.base import Encoded

# halting bias and the factor on all weights that give each kind of segments
REGIMES = {"one character": (9.0, 1.0), "mixed": (-0.5, 3.0), "whole sentence": (-9.0, 1.0)}
# what can differ: maps between the sizes, none, the context in every inner step, an output of another size
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "equal sizes": {"hidden_size": 4, "summary_dim": 4},
    "context fed": {"feed_context": True},
    "output": {"output_dim": 2},
}
VOCABULARY, MEMORY = 9, 4


def decoder(seed: int = 0, regime: str = "mixed", **options: Any) -> ActDecoder:
    """A random decoder in float64 whose segments are of the given kind."""
    bias, scale = REGIMES[regime]
    torch.manual_seed(seed)
    sizes = {"vocab_size": VOCABULARY, "memory_dim": MEMORY, "summary_dim": 6, "embedding_dim": 3}
    sizes |= {"hidden_size": 5, "act_size": 4, "attention_size": 6}
    made = ActDecoder(**(sizes | options)).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if not name.startswith(("initial", "enter", "leave")):  # these in a row would grow without bound
                parameter.mul_(scale)
        made.halting.bias.fill_(bias)
    return made


def memory(lengths: list[int], seed: int = 0, summary_dim: int = 6) -> Encoded:
    """Random encoder states [B, S, M], with garbage beyond each sentence's end."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    count = len(lengths)
    return Encoded(random(count, max(lengths), MEMORY), torch.tensor(lengths), random(count, summary_dim))


def targets(lengths: list[int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random trg_out [B, U], each ending in </s>, then garbage; what is read before it; lengths."""
    generator = torch.Generator().manual_seed(seed)
    out = torch.randint(EOS + 1, VOCABULARY, (len(lengths), max(lengths)), generator=generator)
    out[torch.arange(len(lengths)), torch.tensor(lengths) - 1] = EOS
    before = torch.cat((torch.full((len(lengths), 1), BOS), out[:, :-1]), 1)
    return out, before, torch.tensor(lengths)


def alone(encoded: Encoded, b: int) -> Encoded:
    n = int(encoded.lengths[b])
    single = encoded.rows(slice(b, b + 1))
    return replace(single, states=single.states[:, :n])
