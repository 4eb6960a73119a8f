"""One sentence as a model sees it: cuts, translation, attention and halting, from one pass over it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from caesura.analysis.attention import AttentionMap, attention_map
from caesura.analysis.halting import HaltingTrace, halting_trace
from caesura.data.batching import Ids, collate_targets
from caesura.data.cuts import GivenCuts, places_of
from caesura.data.vocabulary import Spans
from caesura.decoders.base import Decoded, Decoder, DecoderStep
from caesura.encoders.base import Encoded
from caesura.inference import Translator
from caesura.layers.modes import evaluating
from caesura.output import Segmentation, segmentations, uncut
from caesura.search.forced import target_scores
from caesura.search.hypothesis import Hypothesis
from caesura.search.rounds import Check


@dataclass(frozen=True)
class Explanation:
    """How a model cut and translated one sentence, and where it looked."""

    source: str
    spans: Spans  # the characters [start, end) of each source symbol, </s> left out
    segmentation: Segmentation
    translation: str
    log_probability: float  # of the translation, with </s> where it was written
    finished: bool  # False: the translation reached the length limit first
    target_spans: Spans  # of the translation's symbols
    target: Segmentation | None  # None: the decoder does not cut
    attention: AttentionMap | None  # </s> included where it was written; None: the decoder shows none
    halting: HaltingTrace | None  # None: the segmenter has no scores
    reference: float | None  # the log-probability of the reference, if there is one


def explain(
    model: Translator,
    text: str,
    cuts: GivenCuts = None,
    target: str | None = None,
    reference: str | None = None,
    beam: int | None = None,
    check: Check | None = None,
    heads: bool = False,
) -> Explanation:
    """Cut, translate and look at one sentence; its source is read once.

    `cuts`: one entry of the `cuts` of `Translator.process`. `target` is explained in place of the model's own
    translation. `beam` and `check`: see `Translator.searcher`; `check` is called after the search too.
    `heads`: the attention also has each layer and head, if the decoder has several.
    """
    if not isinstance(text, str):
        raise TypeError("explain takes one sentence")
    ids, spans = model.src_vocabulary.encode_spans(text)
    if not ids:
        return _nothing(text, target, reference)
    with evaluating(model), torch.no_grad(), model.precision():
        batch = model.batch([text], cuts=[cuts])
        segments, encoded = model.encode(batch.src, batch.src_lengths, batch.src_cuts)
        parts = segments.ends, segments.weights, segments.scores
        [cut] = segmentations([text], [places_of(spans)], *parts)
        if target is None:
            written = _search(model, encoded, model.limits(batch), beam, check)
        else:
            written = _Written(target, *model.trg_vocabulary.encode_spans(target))
        if check is not None:
            check()
        seen = _look(model, encoded, written, reference)
        every = _heads(model, encoded, written) if heads and model.decoder.looks else None
    steps = int(encoded.lengths[0])
    attention = attention_map(model, cut, written.ids, seen.attention, steps, written.finished, every)
    return Explanation(
        source=text,
        spans=spans,
        segmentation=cut,
        translation=written.text,
        log_probability=seen.scores[0],
        finished=written.finished,
        target_spans=written.spans,
        target=seen.cut,
        attention=attention,
        halting=halting_trace(model, text, cut),
        reference=None if reference is None else seen.scores[1],
    )


@dataclass(frozen=True)
class _Written:
    """A translation and, if a search found it, the search's results."""

    text: str
    ids: list[int]  # without </s>
    spans: Spans
    hypothesis: Hypothesis | None = None
    attention: Tensor | None = None  # [U, S] of the steps that wrote it

    @property
    def finished(self) -> bool:
        return self.hypothesis is None or self.hypothesis.finished


@dataclass(frozen=True)
class _Seen:
    """The decoder's side of a translation: attention and cuts."""

    scores: list[float]  # its log-probability and that of the reference, if there is one
    cut: Segmentation | None
    attention: Tensor | None  # [U, S]


class _Recorder:
    """A decoder that keeps where each step of a greedy search of one sentence looked."""

    def __init__(self, decoder: Decoder[Any]) -> None:
        self._decoder = decoder
        self._rows: list[Tensor] = []  # [1, S] each
        self.start, self.reorder = decoder.start, decoder.reorder

    def step(self, state: Any, symbols: Tensor) -> tuple[DecoderStep, Any]:
        """As the decoder has it."""
        step, state = self._decoder.step(state, symbols)
        if step.attention is not None:
            self._rows.append(step.attention[:, 0])
        return step, state

    @property
    def attention(self) -> Tensor | None:
        """[U, S], or None where the decoder shows none."""
        return torch.cat(self._rows) if self._rows else None


def _search(
    model: Translator, encoded: Encoded, limits: Tensor, beam: int | None, check: Check | None
) -> _Written:
    width = model.config.testing.beam_size if beam is None else beam
    # On a GPU steps are played from graphs, and a beam leaves steps behind that lead nowhere.
    recorder = _Recorder(model.decoder) if width == 1 and model.device.type == "cpu" else None
    decoder = model.decoder if recorder is None else cast("Decoder[Any]", recorder)
    best = model.searcher(beam, check)(decoder, encoded, limits, [0])[0][0]
    ids = list(best.symbols[:-1] if best.finished else best.symbols)
    text, spans = model.trg_vocabulary.decode_spans(ids)
    return _Written(text, ids, spans, best, None if recorder is None else recorder.attention)


def _look(model: Translator, encoded: Encoded, written: _Written, reference: str | None) -> _Seen:
    """The result of a forced pass of the decoder, which is left out if the search has shown everything."""
    complete = (
        written.hypothesis is not None and written.attention is not None and not model.decoder.segmenting
    )
    targets: list[Ids] = [] if complete else [written.ids]
    targets += [] if reference is None else [model.trg_vocabulary.encode(reference)]
    decoded, scores = _forced(model, encoded, targets) if targets else (None, [])
    if written.hypothesis is not None:
        scores = [written.hypothesis.log_prob, *(scores if complete else scores[1:])]
    if complete or decoded is None:
        return _Seen(scores, None, written.attention)
    size = len(written.ids) + written.finished
    attention = None if decoded.attention is None else decoded.attention[0, :size]
    return _Seen(scores, _cut(decoded, written), attention)


def _heads(model: Translator, encoded: Encoded, written: _Written) -> Tensor:
    """[L, N, U, S]: where each head looked; U counts </s> whether it was written or not."""
    trg_in, _, _ = collate_targets([written.ids])
    return model.decoder.look(encoded, trg_in.to(model.device))[0]


def _forced(model: Translator, encoded: Encoded, targets: list[Ids]) -> tuple[Decoded, list[float]]:
    trg_in, trg_out, lengths = (part.to(model.device) for part in collate_targets(targets))
    memory = encoded.rows(torch.zeros(len(targets), dtype=torch.long, device=model.device))
    decoded = model.decoder(memory, trg_in, lengths)
    return decoded, target_scores(decoded.logits, trg_out, lengths)


def _cut(decoded: Decoded, written: _Written) -> Segmentation | None:
    """Where the decoder cut the first translation that was forced through it."""
    if decoded.ends is None or decoded.weights is None:
        return None
    if not written.ids:
        return uncut(written.text)
    scores = None if decoded.scores is None else decoded.scores[:1]
    places = [places_of(written.spans)]
    return segmentations([written.text], places, decoded.ends[:1], decoded.weights[:1], scores)[0]


def _nothing(text: str, target: str | None, reference: str | None) -> Explanation:
    """A line without symbols: its empty translation is certain, and any other is impossible."""
    return Explanation(
        source=text,
        spans=[],
        segmentation=uncut(text),
        translation=target or "",
        log_probability=-math.inf if target else 0.0,
        finished=True,
        target_spans=[],
        target=None,
        attention=None,
        halting=None,
        reference=None if reference is None else -math.inf if reference else 0.0,
    )
