"""Loss and gradients of one batch: as the model computes them, or replayed from CUDA graphs of its shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from caesura.config import Training
from caesura.data.batching import TENSORS, Batch, rounded
from caesura.errors import TrainingError, out_of_memory
from caesura.inference import Translator
from caesura.kernels.graphs import Graphs, wanted
from caesura.segmenters.base import Draft, Segments
from caesura.training.risk import risk_loss
from caesura.training.schedule import sampled_share
from caesura.training.token_dropout import dropped
from caesura.translator import Loss

# Every step's sums for the log, before those of `Translator.counted`; the loss is times its sentences.
SUMS = ("loss", "cross_entropy", "symbols", "sentences")
ALIGNED = 64  # numbers: a gradient begins at a multiple, so that kernels can read many numbers at once


class Step:
    """Leaves a batch's gradients in the parameters; the host waits only to learn the number of segments.

    Gradients are views of one buffer if graphs are used or other processes add theirs (`shared`).
    """

    def __init__(
        self,
        model: Translator,
        settings: Training,
        say: Callable[[str], None] = lambda text: None,
        shared: bool = False,
    ) -> None:
        self.model, self.settings, self.say = model, settings, say
        self.split = False  # whether a batch ever did not fit into memory
        self.graphs = None
        if wanted(model.device):
            if reason := model.segmenter.uncaptured():
                say(f"no CUDA graphs, and so slower: {reason}")
            else:
                self.graphs = Graphs(model.device)
        # On the device, so that a captured step reads what it is now.
        self.sampled = torch.zeros((), device=model.device) if settings.sampling else None
        self._inputs: dict[tuple[str, torch.Size], Tensor] = {}
        # Graphs remember the addresses of gradients.
        self.flat = _flat_gradients(model) if shared or self.graphs is not None else None

    def __call__(self, parts: Batch | Sequence[Batch], update: int = 0) -> Tensor:
        """The sums of `SUMS` and `Translator.counted`, float64, on the device, after `update` updates.

        A batch may come in parts, even none, whose gradients and sums are added up.
        """
        parts = [parts] if isinstance(parts, Batch) else parts
        if not self.model.training:
            self.model.train()
        self.model.follow(update)
        if self.sampled is not None:
            self.sampled.fill_(sampled_share(self.settings, update))
        risk = self.settings.risk_candidates > 0 and update >= self.settings.risk_after
        try:
            return self._summed(parts, partial(self._part, update=update, risk=risk))
        except RuntimeError as problem:
            if not out_of_memory(problem):
                raise
        # Here, outside the handler, nothing holds on to the attempt's tensors.
        return self._in_pieces(parts, update, risk)

    def _summed(self, parts: Sequence[Batch], compute: Callable[[Batch], Tensor]) -> Tensor:
        self._clear()
        if len(parts) == 1:
            return compute(parts[0])
        count = len(SUMS) + len(self.model.counted)
        sums = torch.zeros(count, dtype=torch.float64, device=self.model.device)
        for part in parts:
            sums += compute(part)
        return sums

    def _part(self, batch: Batch, update: int, risk: bool) -> Tensor:
        if self.graphs is not None and not risk:
            return self._played(self.graphs, batch)
        return self._plainly(batch, update, risk)

    def _plainly(self, batch: Batch, update: int, risk: bool) -> Tensor:
        loss = self._loss(batch, update, risk)
        loss.total.backward()
        return _sums(loss, batch)

    def _loss(self, batch: Batch, update: int, risk: bool) -> Loss:
        batch = batch.to(self.model.device, non_blocking=True)
        with self._autocast():
            segments = self.model.segmenter(self._source(batch), batch.src_lengths, given=batch.src_cuts)
            if risk:  # draws and scores its targets on the host
                return risk_loss(self.model, batch, segments, update)
            return self._forced(batch, segments)

    def _source(self, batch: Batch) -> Tensor:
        """The segmenter's input; token dropout spares symbols after which it has to cut."""
        return dropped(batch.src, self.settings.src_token_dropout, self.model.segmenter.cut_after)

    def _forced(self, batch: Batch, segments: Segments) -> Loss:
        """The loss of the targets, with token dropout on the decoder's input."""
        if batch.trg_in is not None:
            batch = replace(batch, trg_in=dropped(batch.trg_in, self.settings.trg_token_dropout))
        return self.model.loss(batch, segments, self.sampled)

    def _in_pieces(self, parts: Sequence[Batch], update: int, risk: bool) -> Tensor:
        """The same gradients if memory is short: each part in as few pieces as fit, added up."""
        pieces, most = 1, max(map(len, parts))
        compute = partial(self._plainly, update=update, risk=risk)
        while pieces < most:
            pieces = min(2 * pieces, most)
            self._make_room()
            if not self.split:
                size = sum(map(len, parts))
                self.say(f"a batch of {size} sentences does not fit into memory; such are split now")
            self.split = True
            summed = partial(self._summed, [*_pieces(parts, pieces)], compute)
            try:
                # Where graphs run, so that gradients are added up on the stream that they were made on.
                return summed() if self.graphs is None else self.graphs.play(None, summed).result
            except RuntimeError as problem:
                if not out_of_memory(problem):
                    raise
        T, U = (max(part.shape[axis] for part in parts) for axis in (1, 2))
        sizes = f"{T} by {U} symbols"
        raise TrainingError(
            f"a sentence ({sizes}) does not fit into memory; set a smaller data.src.max_length"
        )

    def _make_room(self) -> None:
        if self.graphs is not None:
            self.graphs.forget()
            self._inputs.clear()
        elif self.model.device.type == "cuda":
            torch.cuda.empty_cache()

    def _clear(self) -> None:
        if self.flat is not None:
            self.flat.zero_()
            return
        for parameter in self.model.parameters():
            parameter.grad = None

    def _autocast(self) -> torch.autocast:
        enabled = self.settings.precision == "bfloat16"
        return torch.autocast(self.model.device.type, torch.bfloat16, enabled=enabled)

    def _played(self, graphs: Graphs, batch: Batch) -> Tensor:
        B, T, U = batch.shape
        inputs, room = self._on_device(batch), self._room(batch)
        if room is not None:
            key = B, T, U, room
            return graphs.play(key, lambda: self._gradients(inputs, self._cut(inputs), room)).result
        played = graphs.play((B, T), lambda: self._cut(inputs))
        draft, number = played.result, played.number
        S = min(T, rounded(int(draft.cuts.segments)))  # the one synchronisation
        # Cuts without a graph will not come again.
        after = None if number is None else (B, T, U, S, number)
        return graphs.play(after, lambda: self._gradients(inputs, draft, S, again=True)).result

    def _room(self, batch: Batch) -> int | None:
        """Most segments of a sentence, where that is known before it is cut."""
        T = batch.src.shape[1]
        if batch.src_cuts is None:
            return self.model.segmenter.room(T)
        if not self.model.segmenter.needs_given():
            return None
        cuts = (batch.src_cuts > 0).sum(1).max()  # on the host, where batches come from
        return min(T, rounded(int(cuts) + 1))

    def _on_device(self, batch: Batch) -> Batch:
        """The batch in buffers that all batches with these shapes share, and so do their graphs."""

        def placed(name: str, tensor: Tensor) -> Tensor:
            key = name, tensor.shape
            if key not in self._inputs:
                self._inputs[key] = torch.empty_like(tensor, device=self.model.device)
            return self._inputs[key].copy_(tensor, non_blocking=True)

        tensors = {name: tensor for name in TENSORS if (tensor := getattr(batch, name)) is not None}
        inputs: dict[str, Any] = {name: placed(name, tensor) for name, tensor in tensors.items()}
        return replace(batch, **inputs)

    def _cut(self, inputs: Batch) -> Draft:
        # Graphs of several shapes follow this one, some of them captured when the weights have changed: that
        # what is saved here has since been overwritten is as it should be.
        with self._autocast(), saved_tensors_hooks(Tensor.detach, lambda saved: saved):
            return self.model.segmenter.cut(self._source(inputs), inputs.src_lengths, given=inputs.src_cuts)

    def _gradients(self, inputs: Batch, draft: Draft, S: int, again: bool = False) -> Tensor:
        """The gradients of a batch that is cut; with `again`, the cuts are a graph of their own."""
        with self._autocast():
            loss = self._forced(inputs, self.model.segmenter.emit(draft, S))
        loss.total.backward(retain_graph=again)
        return _sums(loss, inputs)


def _flat_gradients(model: Translator) -> Tensor:
    """Zeros; each parameter gets a view of them for its gradient."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    sizes = [-(-p.numel() // ALIGNED) * ALIGNED for p in parameters]
    flat = torch.zeros(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
    for parameter, view in zip(parameters, flat.split(sizes), strict=True):
        parameter.grad = view[: parameter.numel()].view_as(parameter)
    return flat


def _pieces(parts: Sequence[Batch], count: int) -> Iterator[Batch]:
    """Each part in `count` pieces, or in one per sentence if it has fewer sentences."""
    for part in map(Batch.as_part, parts):
        for rows in np.array_split(np.arange(len(part)), min(count, len(part))):
            yield part.rows(slice(int(rows[0]), int(rows[-1]) + 1))


def _sums(loss: Loss, batch: Batch) -> Tensor:
    parts = loss.total, loss.cross_entropy, loss.symbols, loss.sentences, *loss.counts.values()
    sums = torch.stack([part.detach().double() for part in parts])
    sums[0] *= loss.sentences if batch.whole is None else batch.whole[1]
    return sums
