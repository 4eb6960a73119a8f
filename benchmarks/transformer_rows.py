"""The Transformer of transformers.py written with PyTorch's own modules, and JoeyNMT 2.3's.

All have 6 + 6 layers of 512 with 4 heads, feed-forward layers of 1,024, the norm first, sinusoidal positions,
an output layer tied to the target embeddings, dropout and label smoothing of 0.1. How to install JoeyNMT:
joeynmt_rows.py.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LAYERS, WIDTH, HEADS, INNER, DROPOUT, SMOOTHING, LONGEST = 6, 512, 4, 1024, 0.1, 0.1, 1024
PAD, EOS, BOS = 1, 3, 2

Step = Callable[[], object]


class Pytorch(nn.Module):
    """`torch.nn.Transformer` between two embedding tables."""

    positions: Tensor

    def __init__(self, source: int, target: int) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(source, WIDTH), nn.Embedding(target, WIDTH)
        self.transformer = nn.Transformer(
            WIDTH, HEADS, LAYERS, LAYERS, INNER, DROPOUT, batch_first=True, norm_first=True
        )
        self.dropout = nn.Dropout(DROPOUT)
        at = torch.arange(LONGEST)[:, None] * torch.exp(torch.arange(0, WIDTH, 2) * (-math.log(1e4) / WIDTH))
        self.register_buffer("positions", torch.stack((at.sin(), at.cos()), 2).flatten(1))

    def forward(self, src: Tensor, trg_in: Tensor, trg_out: Tensor, padding: Tensor) -> Tensor:
        """The smoothed cross-entropy per symbol; `padding` [B, T] of the source."""
        U = trg_in.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(U, device=src.device, dtype=torch.bool)
        states = self.transformer(
            self._embedded(self.source, src),
            self._embedded(self.target, trg_in),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        logits = F.linear(states, self.target.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), trg_out.flatten(), label_smoothing=SMOOTHING)

    def _embedded(self, table: nn.Embedding, ids: Tensor) -> Tensor:
        return self.dropout(table(ids) * math.sqrt(WIDTH) + self.positions[: ids.shape[1]])


def pytorch_step(ids: Tensor, vocabulary: int, mode: str | None) -> Step:
    """A training step on ids [2, B, T] with the fused Adam, compiled in a `mode` or not at all."""
    model = Pytorch(vocabulary, vocabulary).to(ids.device)
    run: Any = model if mode is None else torch.compile(model, mode=mode, dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5, fused=True)
    src, trg = ids
    trg_in, padding = trg.roll(1, 1), torch.zeros_like(src, dtype=torch.bool)

    def step() -> None:
        with torch.autocast(ids.device.type, torch.bfloat16):
            loss = run(src, trg_in, trg, padding)
        optimizer.zero_grad(set_to_none=mode != "reduce-overhead")
        loss.backward()
        optimizer.step()

    return step


def joeynmt(vocabulary: int, device: torch.device) -> Any:
    """JoeyNMT's model."""
    from joeynmt.model import build_model
    from joeynmt.vocabulary import Vocabulary

    specials = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    ids = {"unk_id": 0, "pad_id": PAD, "bos_id": BOS, "eos_id": EOS, "sep_token": None, "sep_id": None}
    special = SimpleNamespace(**specials, **ids, lang_tags=[])
    vocabularies = [Vocabulary([chr(0x4E00 + i) for i in range(vocabulary - 4)], special) for _ in range(2)]
    part = {
        "type": "transformer",
        "num_layers": LAYERS,
        "num_heads": HEADS,
        "embeddings": {"embedding_dim": WIDTH, "scale": True, "dropout": DROPOUT},
        "hidden_size": WIDTH,
        "ff_size": INNER,
        "dropout": DROPOUT,
        "layer_norm": "pre",
    }
    logging.disable(logging.INFO)
    torch.manual_seed(1)
    built = build_model({"encoder": part, "decoder": part, "tied_softmax": True}, *vocabularies)
    built.loss_function = ("crossentropy", SMOOTHING)
    return built.to(device)


def joeynmt_batch(ids: Tensor) -> Any:
    """Its batch of ids [2, B, T]."""
    from joeynmt.batch import Batch

    src, trg = ids.cpu()
    B, T = src.shape
    begun = torch.cat((torch.full((B, 1), BOS), trg), 1)
    return Batch(src, torch.full((B,), T), None, begun, None, torch.arange(B), ids.device, PAD, EOS)


def joeynmt_step(ids: Tensor, vocabulary: int, bfloat16: bool) -> Step:
    """A training step as its trainer takes one, with its Adam, which is not the fused one."""
    built, data = joeynmt(vocabulary, ids.device).train(), joeynmt_batch(ids)
    optimizer = torch.optim.Adam(built.parameters(), lr=1e-5)

    def step() -> None:
        with torch.autocast(ids.device.type, torch.bfloat16, enabled=bfloat16):
            loss = built(return_type="loss", **vars(data))[0] / data.ntokens
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def joeynmt_search(ids: Tensor, vocabulary: int, beam: int, length: int, bfloat16: bool) -> Step:
    """Its search over sentences of ids [2, B, T]; all translations have `length` symbols."""
    from joeynmt.search import search

    built, data = joeynmt(vocabulary, ids.device).eval(), joeynmt_batch(ids)
    kind = {"device_type": ids.device.type, "dtype": torch.bfloat16, "enabled": bfloat16}

    def step() -> None:
        symbols, _, _ = search(built, data, length, beam, 1.0, min_output_length=length, autocast=kind)
        assert symbols.shape == (len(data.src), length)

    return step


def serve(beam: int, symbols: int, vocabulary: int) -> None:
    """For transformers.py on a CPU: a line with threads and batch size in, the seconds of a search out."""
    print("ready", flush=True)
    for line in sys.stdin:
        threads, B = map(int, line.split())
        torch.set_num_threads(threads)
        ids = torch.randint(4, vocabulary, (2, B, symbols))
        ids[:, :, -1] = EOS
        step = joeynmt_search(ids, vocabulary, beam, symbols, bfloat16=False)
        began = time.perf_counter()
        step()
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
