"""The loss of each sentence under cuts that an analysis chooses.

B sentences, N rows made of them, T source and U target symbols.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from caesura.data.batching import Batch
from caesura.data.vocabulary import PAD
from caesura.inference import Translator
from caesura.search.rounds import Check
from caesura.segmenters.base import Segments

# Limits per batch of rows: symbols of their longer sides, and logits.
SYMBOLS, SYMBOLS_ON_A_GPU = 16_000, 200_000
SYMBOLS_TO_A_CHECK = 2_000  # about half a second on a CPU
LOGITS, LOGITS_ON_A_GPU = 1 << 26, 1 << 30


@contextmanager
def resting(model: Translator) -> Iterator[None]:
    """Inside, the model has no dropout and no gradients of its parameters; afterwards it is as before."""
    modes = [(module, module.training) for module in model.modules()]
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        model.eval()
        for parameter in learning:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in learning:
            parameter.requires_grad_(True)
        for module, mode in modes:
            module.training = mode


@dataclass(frozen=True)
class Pairs:
    """Sentences with their translations, from which rows of any number and order are taken."""

    model: Translator
    batch: Batch
    check: Check | None = None  # is called before each batch of rows; it may raise to end the work

    @classmethod
    def of(cls, model: Translator, batch: Batch, check: Check | None = None) -> Pairs:
        """A batch on the model's device, without its rows of padding; ValueError where it has no targets."""
        if batch.trg_in is None:
            raise ValueError("a loss needs a batch with targets")
        return cls(model, batch.rows(slice(0, len(batch))).to(model.device), check)

    @property
    def inner(self) -> Tensor:
        """[B, T] bool: this symbol has a gap after it that may be cut or joined; that before </s> may not."""
        steps = torch.arange(self.batch.src.shape[1], device=self.batch.src.device)
        return steps < (self.batch.src_lengths - 2)[:, None]

    def chunks(self, rows: Tensor, copies: int = 1) -> Iterator[Tensor]:
        """Positions in `rows` [N], sentences of similar length together, as many as fit `copies` times."""
        assert self.batch.trg_lengths is not None
        gpu, sources, targets = rows.is_cuda, self.batch.src_lengths, self.batch.trg_lengths
        symbols, logits = (SYMBOLS_ON_A_GPU, LOGITS_ON_A_GPU) if gpu else (SYMBOLS, LOGITS)
        if self.check is not None and not gpu:
            symbols = min(symbols, SYMBOLS_TO_A_CHECK)
        if not len(rows):
            return
        order = torch.maximum(sources, targets)[rows].argsort(descending=True, stable=True)
        longest, written = int(torch.maximum(sources, targets).max()), int(targets.max())
        most = min(symbols // longest, logits // (written * len(self.model.trg_vocabulary)))
        for part in order.split(max(1, most // copies)):
            if self.check is not None:
                self.check()
            yield part

    def losses(self, rows: Tensor, given: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
        """[N]: cross-entropy of the targets of sentences `rows` [N], in nats per symbol, </s> counted.

        Cuts `given` [N, T] or a `shift` [N, T] of the scores; without cuts, those of the batch.
        """
        return self.forced(rows, given, shift)[0]

    def forced(
        self, rows: Tensor, given: Tensor | None = None, shift: Tensor | None = None
    ) -> tuple[Tensor, Segments]:
        """The same, and the segments; with K cuttings, the losses [K * N] of all of them."""
        batch, model = self.batch, self.model
        assert batch.trg_in is not None
        assert batch.trg_out is not None
        assert batch.trg_lengths is not None
        lengths, written = batch.src_lengths[rows], batch.trg_lengths[rows]
        src, trg_in, trg_out = batch.src[rows], batch.trg_in[rows], batch.trg_out[rows]
        T, U = int(lengths.max()), int(written.max())
        if given is None and batch.src_cuts is not None:
            given = batch.src_cuts[rows]
        given = None if given is None else given[:, :T].contiguous()
        if shift is None:
            segments = model.segmenter(src[:, :T], lengths, given=given)
        else:
            segments = model.segmenter.shifted(src[:, :T], lengths, shift[:, :T], given)
        encoded = model.encoder.encode(segments)
        copies = segments.cuts.copies
        written = written.repeat(copies)
        logits = model.decoder(encoded, trg_in[:, :U].repeat(copies, 1), written).logits
        full = logits.to(torch.promote_types(logits.dtype, torch.float32))
        targets = trg_out[:, :U].repeat(copies, 1).flatten()
        each = F.cross_entropy(full.flatten(0, 1), targets, ignore_index=PAD, reduction="none")
        return each.view(len(written), U).double().sum(1) / written, segments

    def slopes(self, rows: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Losses [N] with a `shift` [N, T], and training's gradient with respect to it.

        With K cuttings, the mean loss, and a gradient that includes what the cutter learns from the losses.
        """
        with torch.enable_grad():
            leaf = shift.detach().clone().requires_grad_()
            each, segments = self.forced(rows, shift=leaf)
            losses, copies = each.view(-1, len(rows)).mean(0), segments.cuts.copies
            if copies > 1:
                losses = losses + self.model.segmenter.feedback(segments.cuts, each.view(copies, -1))
            if not losses.requires_grad:
                return losses.detach(), torch.zeros_like(leaf)
            return losses.detach(), torch.autograd.grad(losses.sum(), leaf)[0]
