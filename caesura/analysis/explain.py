"""One sentence as a model sees it: cuts, translation, attention and halting, from one pass over it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from caesura.analysis.attention import AttentionMap, attention_map
from caesura.analysis.halting import HaltingTrace, halting_trace
from caesura.data.batching import collate_targets
from caesura.data.cuts import GivenCuts, places_of
from caesura.data.vocabulary import Spans
from caesura.encoders.base import Encoded
from caesura.inference import Translator
from caesura.layers.modes import evaluating
from caesura.output import Segmentation, segmentations, uncut
from caesura.search.forced import target_scores
from caesura.search.rounds import Check


@dataclass(frozen=True)
class Explanation:
    """How a model cut and translated one sentence, and what it looked at. No symbols: an empty line."""

    source: str
    spans: Spans  # the characters [start, end) of each source symbol, </s> left out
    segmentation: Segmentation
    translation: str
    log_probability: float  # of the translation, </s> included where it was written
    finished: bool  # False: the translation ran into the longest output that is allowed
    target_spans: Spans  # of the translation's symbols
    target: Segmentation | None  # None: the decoder does not cut
    attention: AttentionMap | None  # None: the decoder shows none
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
) -> Explanation:
    """Cut, translate and look at one sentence; its source is read once.

    `cuts`: as an entry of `Translator.process`. `target` is explained in place of the model's own
    translation. `beam` and `check`: see `Translator.searcher`.
    """
    if not isinstance(text, str):
        raise TypeError("explain takes one sentence")
    ids, spans = model.src_vocabulary.encode_spans(text)
    if not ids:
        return _nothing(text, target, reference)
    with evaluating(model), torch.no_grad(), model.precision():
        batch = model.batch([text], cuts=[cuts])
        segments, encoded = model.encode(batch.src, batch.src_lengths, batch.src_cuts)
        [cut] = segmentations([text], [places_of(spans)], segments.ends, segments.weights, segments.scores)
        finished, log_probability = True, None
        if target is None:
            best = model.searcher(beam, check)(model.decoder, encoded, model.limits(batch), [0])[0][0]
            finished, log_probability = best.finished, best.log_prob
            written = list(best.symbols[:-1] if finished else best.symbols)
            target, target_spans = model.trg_vocabulary.decode_spans(written)
        else:
            written, target_spans = model.trg_vocabulary.encode_spans(target)
        forced = _forced(model, encoded, target, (written, target_spans), reference)
    steps = int(encoded.lengths[0])
    return Explanation(
        source=text,
        spans=spans,
        segmentation=cut,
        translation=target,
        log_probability=forced.scores[0] if log_probability is None else log_probability,
        finished=finished,
        target_spans=target_spans,
        target=forced.cut,
        attention=attention_map(model, cut, written, forced.attention, steps),
        halting=halting_trace(model, text, cut),
        reference=None if reference is None else forced.scores[1],
    )


@dataclass(frozen=True)
class _Forced:
    """What one pass of the decoder over a translation, and perhaps a reference, shows."""

    scores: list[float]  # log-probabilities of the two
    cut: Segmentation | None
    attention: torch.Tensor | None  # [U, S]


def _forced(
    model: Translator,
    encoded: Encoded,
    target: str,
    symbols: tuple[list[int], Spans],
    reference: str | None,
) -> _Forced:
    ids, spans = symbols
    targets = [ids] if reference is None else [ids, model.trg_vocabulary.encode(reference)]
    trg_in, trg_out, lengths = (part.to(model.device) for part in collate_targets(targets))
    memory = encoded.rows(torch.zeros(len(targets), dtype=torch.long, device=model.device))
    decoded = model.decoder(memory, trg_in, lengths)
    cut = None
    if decoded.ends is not None and decoded.weights is not None:
        scores = None if decoded.scores is None else decoded.scores[:1]
        parts = decoded.ends[:1], decoded.weights[:1], scores
        cut = segmentations([target], [places_of(spans)], *parts)[0] if ids else uncut(target)
    attention = None if decoded.attention is None else decoded.attention[0, : len(ids) + 1]
    return _Forced(target_scores(decoded.logits, trg_out, lengths), cut, attention)


def _nothing(text: str, target: str | None, reference: str | None) -> Explanation:
    """Of a line without symbols, whose translation is empty and certain; any other is impossible."""
    score, other = (None if one is None else -torch.inf if one else 0.0 for one in (target, reference))
    return Explanation(
        source=text,
        spans=[],
        segmentation=uncut(text),
        translation=target or "",
        log_probability=score or 0.0,
        finished=True,
        target_spans=[],
        target=None,
        attention=None,
        halting=None,
        reference=other,
    )
