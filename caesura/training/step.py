"""Loss and gradients of one batch: as the model computes them, or replayed from CUDA graphs of its shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from caesura.config import Training
from caesura.data.batching import TENSORS, Batch, rounded
from caesura.errors import TrainingError
from caesura.kernels.graphs import Graphs, out_of_memory, wanted
from caesura.model import Loss, Translator
from caesura.segmenters.base import Cuts, Segmenter
from caesura.training.risk import risk_loss
from caesura.training.schedule import sampled_share

# What a step gives to the log; the first four are the batch's, times its sentences, the last six its cuts.
SUMS = (
    *("loss", "penalty", "remainder", "decoder_penalty", "cross_entropy", "symbols", "sentences"),
    *("source_symbols", "segments", "inside", "output_symbols", "output_segments", "output_inside"),
)


class Step:
    """Leaves a batch's gradients in the parameters; the host waits only to learn the number of segments."""

    def __init__(
        self, model: Translator, settings: Training, say: Callable[[str], None] = lambda text: None
    ) -> None:
        self.model, self.settings, self.say = model, settings, say
        self.split = False  # whether a batch ever did not fit into memory
        whole = type(model.segmenter).forward is not Segmenter.forward
        self.graphs = Graphs(model.device) if wanted(model.device) and not whole else None
        # On the device, so that a captured step reads what it is now.
        self.sampled = torch.zeros((), device=model.device) if settings.sampling else None
        self._inputs: dict[tuple[str, torch.Size], Tensor] = {}
        if self.graphs is not None:  # whose addresses the graphs will remember
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)

    def __call__(self, batch: Batch, update: int = 0) -> Tensor:
        """The sums of `SUMS` [13], in float64 and on the model's device; `update` others came before."""
        if not self.model.training:
            self.model.train()
        if self.sampled is not None:
            self.sampled.fill_(sampled_share(self.settings, update))
        risk = self.settings.risk_candidates > 0 and update >= self.settings.risk_after
        try:
            return self._whole(batch, update, risk)
        except RuntimeError as problem:
            if not out_of_memory(problem):
                raise
        # Here, where nothing holds on to what the attempt has computed.
        return self._in_pieces(batch, update, risk)

    def _whole(self, batch: Batch, update: int, risk: bool) -> Tensor:
        if self.graphs is not None and not risk:
            return self._played(self.graphs, batch)
        self._clear()
        loss = self._loss(batch, update, risk)
        loss.total.backward()
        return _sums(loss)

    def _loss(self, batch: Batch, update: int, risk: bool) -> Loss:
        batch = batch.to(self.model.device, non_blocking=True)
        with self._autocast():
            segments = self.model.segmenter(batch.src, batch.src_lengths)
            if risk:  # draws and scores its targets on the host
                return risk_loss(self.model, batch, segments, update)
            return self.model.loss(batch, segments, self.sampled)

    def _in_pieces(self, batch: Batch, update: int, risk: bool) -> Tensor:
        """The same gradients, of a batch that does not fit, summed over as few pieces of it as do."""
        pieces = 1
        while pieces < len(batch):
            pieces = min(2 * pieces, len(batch))
            self._make_room()
            if not self.split:
                self.say(f"a batch of {len(batch)} sentences does not fit into memory; such are split now")
            self.split = True
            summed = partial(self._summed, batch, update, risk, pieces)
            try:
                # Where graphs run, so that gradients are added up on the stream that they were made on.
                return summed() if self.graphs is None else self.graphs.play(None, summed).result
            except RuntimeError as problem:
                if not out_of_memory(problem):
                    raise
        sizes = "{} by {} symbols".format(*batch.shape[1:])
        raise TrainingError(
            f"a sentence ({sizes}) does not fit into memory; set a smaller data.src.max_length"
        )

    def _summed(self, batch: Batch, update: int, risk: bool, pieces: int) -> Tensor:
        assert batch.trg_lengths is not None
        self._clear()
        sums = torch.zeros(len(SUMS), dtype=torch.float64, device=self.model.device)
        symbols, sentences, parts = int(batch.trg_lengths.sum()), len(batch), self.model.config.model
        for rows in np.array_split(np.arange(sentences), pieces):
            loss = self._loss(batch.rows(slice(int(rows[0]), int(rows[-1]) + 1)), update, risk)
            share = len(rows) / sentences
            total = loss.total * share
            # By symbols, the cross-entropy of a piece counts as much as its share of them.
            if not risk and self.settings.normalization == "symbols":
                penalties = parts.segmenter.tau * loss.penalty + parts.decoder.tau * loss.decoder_penalty
                total = (loss.total - penalties) * loss.symbols / symbols + penalties * share
            total.backward()
            sums += _sums(replace(loss, total=total.detach() / share))
        return sums

    def _make_room(self) -> None:
        if self.graphs is not None:
            self.graphs.forget()
            self._inputs.clear()
        elif self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _clear(self) -> None:
        if self.graphs is None:
            for parameter in self.model.parameters():
                parameter.grad = None
        else:
            torch._foreach_zero_([p.grad for p in self.model.parameters() if p.grad is not None])

    def _autocast(self) -> torch.autocast:
        enabled = self.settings.precision == "bfloat16"
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=enabled)

    def _played(self, graphs: Graphs, batch: Batch) -> Tensor:
        B, T, U = batch.shape
        inputs = self._on_device(batch)
        if self.model.segmenter.one_each:
            return graphs.play((B, T, U), lambda: self._gradients(inputs, self._cut(inputs), T)).result
        played = graphs.play((B, T), lambda: self._cut(inputs))
        cuts, number = played.result, played.number
        S = min(T, rounded(int(cuts.longest)))  # the one synchronisation
        key = None if number is None else (B, T, U, S, number)  # cuts without a graph will not come again
        return graphs.play(key, lambda: self._gradients(inputs, cuts, S)).result

    def _on_device(self, batch: Batch) -> Batch:
        """The batch in buffers that all batches with these shapes share, and so do their graphs."""

        def placed(name: str, tensor: Tensor) -> Tensor:
            key = name, tensor.shape
            if key not in self._inputs:
                self._inputs[key] = torch.empty_like(tensor, device=self.model.device)
            return self._inputs[key].copy_(tensor, non_blocking=True)

        inputs: dict[str, Any] = {name: placed(name, getattr(batch, name)) for name in TENSORS}
        return replace(batch, **inputs)

    def _cut(self, inputs: Batch) -> Cuts:
        # Graphs of several shapes follow this one, some of them captured when the weights have changed: that
        # what is saved here has since been overwritten is as it should be.
        with self._autocast(), saved_tensors_hooks(Tensor.detach, lambda saved: saved):
            return self.model.segmenter.cut(inputs.src, inputs.src_lengths)

    def _gradients(self, inputs: Batch, cuts: Cuts, S: int) -> Tensor:
        with self._autocast():
            loss = self.model.loss(inputs, self.model.segmenter.emit(cuts, S), self.sampled)
        self._clear()
        # Cuts that are a graph of their own may come again.
        loss.total.backward(retain_graph=not self.model.segmenter.one_each)
        return _sums(loss)


def _sums(loss: Loss) -> Tensor:
    means = torch.stack((loss.total, loss.penalty, loss.remainder, loss.decoder_penalty)).detach().double()
    rest = loss.cross_entropy.detach().double(), loss.symbols.double(), loss.sentences.double()
    return torch.cat(
        (means * loss.sentences, torch.stack(rest), loss.cuts.double(), loss.output_cuts.double())
    )
