"""The answers: a request in, a response out, computed by the calling thread."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from caesura.analysis.explain import Explanation, explain
from caesura.analysis.flips import NEGLIGIBLE, Flips, flips
from caesura.data.entropy import EntropyModelCuts
from caesura.explorer import schema
from caesura.explorer.describe import described
from caesura.explorer.limits import Limits
from caesura.explorer.refused import Refused
from caesura.explorer.rules import Line, characters, decisions, rules_of
from caesura.explorer.shelf import Loaded, Shelf
from caesura.inference import Translator
from caesura.output import Segmentation
from caesura.search.rounds import Check

Given = dict[int, int] | list[int] | None


@dataclass(frozen=True)
class Answers:
    """Everything that a request can ask for, from the models on a shelf."""

    shelf: Shelf
    limits: Limits

    def models(self) -> schema.ModelsAnswer:
        """The answer of /api/models."""
        bounds = self.limits
        limits = schema.Limits(characters=bounds.characters, texts=bounds.texts, flips=bounds.flips)
        models = [described(slot, self.shelf) for slot in self.shelf.slots.values()]
        return schema.ModelsAnswer(models=models, limits=limits)

    def segment(self, request: schema.SegmentRequest, check: Check) -> schema.SegmentAnswer:
        """The answer of /segment."""
        with self._borrow(request) as loaded, torch.inference_mode():
            line, given = self._read(loaded.model, request)
            check()
            cut = loaded.model.process([line.text], None, cuts=[given])[0].segmentation
            parts = dict(_segmented(line, cut, request.cuts, _entropy_scores(loaded.model, line)))
            return schema.SegmentAnswer(model=request.model, version=loaded.version, **parts)

    def explain(self, request: schema.ExplainRequest, check: Check) -> schema.ExplainAnswer:
        """The answer of /explain."""
        began = time.perf_counter()
        with self._borrow(request) as loaded, torch.inference_mode():
            line, given = self._read(loaded.model, request)
            if request.reference is not None:
                self._check(request.reference, "reference")
            model, reference, which = loaded.model, request.reference, _look(loaded.model, request)
            beam, heads = request.beam, which is not None
            one = explain(model, line.text, given, None, reference, beam, check, heads)
            scores = _entropy_scores(model, line)
        written = [first for first, _ in characters(one.target_spans)]
        output = schema.Written(
            symbols=[one.translation[slice(*one.target_spans[i])] for i in written],
            offsets=[one.target_spans[i][0] for i in written],
            pieces=None if one.target is None else one.target.shown,
            finished=one.finished,
        )
        rows = [*written, *range(len(one.target_spans), len(one.target_spans) + one.finished)]
        return schema.ExplainAnswer(
            model=request.model,
            version=loaded.version,
            segmentation=_segmented(line, one.segmentation, request.cuts, scores),
            translation=one.translation,
            log_probability=_finite(one.log_probability),
            reference=None if reference is None else _scored(reference, one.reference),
            output=output,
            attention=_attended(one, rows, which),
            halting=_halting(one),
            milliseconds=1000 * (time.perf_counter() - began),
        )

    def translate(self, request: schema.TranslateRequest, check: Check) -> schema.TranslateAnswer:
        """The answer of /translate."""
        if len(request.texts) > self.limits.texts:
            raise Refused(
                413, f"{len(request.texts)} texts; at most {self.limits.texts} are allowed", "texts"
            )
        for text in request.texts:
            self._check(text, "texts")
        cuts = request.cuts
        if cuts is not None and len(cuts) != len(request.texts):
            raise Refused(422, f"cuts has {len(cuts)} entries, but texts has {len(request.texts)}", "cuts")
        with self.shelf.borrow(request.model, request.rate, request.texts) as loaded, torch.inference_mode():
            search = loaded.model.searcher(request.beam, check)
            outputs = loaded.model.process(request.texts, search, cuts=cuts)
        best = [(out.best, out.hypotheses[0].log_prob if out.hypotheses else 0.0) for out in outputs]
        translations = [_scored(text, score) for text, score in best]
        return schema.TranslateAnswer(model=request.model, version=loaded.version, translations=translations)

    def flips(self, request: schema.FlipsRequest, check: Check) -> schema.FlipsAnswer:
        """The answer of /flips."""
        with self._borrow(request) as loaded:
            model = loaded.model
            if not model.segmenter.takes_cuts:
                raise Refused(422, "this model reads symbol by symbol, so it has no cuts to flip", "model")
            line, given = self._read(model, request)
            if not line.ids:
                raise Refused(422, "there are no gaps in an empty text", "text")
            if len(line.gaps) > self.limits.flips and not request.long:
                most = f"flipping more than {self.limits.flips} takes long"
                raise Refused(413, f"{len(line.gaps)} gaps; {most}: set long to do it anyway", "text")
            target = self._target(model, line, given, request, check)
            one = flips(model, line.text, target, rounds=0, cuts=given, check=check)
        return _flipped(request, loaded.version, line, one)

    def _target(
        self, model: Translator, line: Line, given: Given, request: schema.FlipsRequest, check: Check
    ) -> str:
        if request.target is not None:
            self._check(request.target, "target")
            return request.target
        with torch.inference_mode():
            return model.process([line.text], model.searcher(1, check), cuts=[given])[0].best

    @contextmanager
    def _borrow(self, request: schema.SegmentRequest) -> Iterator[Loaded]:
        """The model for a request about one text, at the requested rate."""
        self._check(request.text, "text")
        with self.shelf.borrow(request.model, request.rate, [request.text]) as loaded:
            yield loaded

    def _read(self, model: Translator, request: schema.SegmentRequest) -> tuple[Line, Given]:
        """The text of a request, and where it is to be cut."""
        line, entropy = Line.of(request.text, model.src_vocabulary), self.shelf.entropy(model)
        rules = rules_of(model, entropy)
        if request.rule.name not in rules:
            choice = f"it can follow {', '.join(rules)}" if rules else "it can follow none"
            raise Refused(422, f"this model cannot follow the rule '{request.rule.name}'; {choice}", "rule")
        if request.cuts and not model.segmenter.takes_cuts:
            raise Refused(422, "this model reads symbol by symbol, so it has no cuts to move", "cuts")
        return line, decisions(line, request.rule, request.cuts, entropy)

    def _check(self, text: str, field: str) -> None:
        if len(text) > self.limits.characters:
            most = f"at most {self.limits.characters} are allowed"
            raise Refused(413, f"{field} has {len(text)} characters; {most}", field)


Look = tuple[int, int | None]  # layer and head; None: the mean over heads


def _attended(one: Explanation, rows: list[int], which: Look | None) -> list[list[float]] | None:
    """The weights of these rows; the weight of a segment within a character goes to the one before it."""
    if one.attention is None:
        return None
    shown = [i for i, piece in enumerate(one.segmentation.pieces) if piece]
    shown += range(len(one.segmentation.pieces), len(one.attention.source))  # </s> alone
    bounds = [*pairwise([*shown, len(one.attention.source)])]
    weights = one.attention.weights if which is None else one.attention.of(*which).tolist()
    return [[sum(weights[row][a:b]) for a, b in bounds] for row in rows]


def _halting(one: Explanation) -> list[float] | None:
    """The halting sum after each character."""
    sums = None if one.halting is None else one.halting.sums
    return None if sums is None else [sums[last] for _, last in characters(one.spans)]


def _look(model: Translator, request: schema.ExplainRequest) -> Look | None:
    """The layer and head of the requested attention; None: the usual one."""
    if request.layer is None and request.head is None:
        return None
    has = model.decoder.looks
    for field in ("layer", "head"):
        number: int | None = getattr(request, field)
        if has is None and number is not None:
            raise Refused(422, f"this model's decoder has a single attention; leave {field} out", field)
        if has is not None and number is not None and number > (most := getattr(has, f"{field}s")):
            raise Refused(422, f"there is no {field} {number}; choose 1 to {most}", field)
    assert has is not None
    return request.layer or has.shown, request.head


def _entropy_scores(model: Translator, line: Line) -> dict[int, float]:
    """By offset, the scores of a model whose text is cut by entropy: one half at the threshold.

    Each further bit doubles the odds.
    """
    if not isinstance(model.cuts, EntropyModelCuts) or not line.gaps:
        return {}
    above = np.clip(model.cuts.scores(line.text) - model.cuts.threshold, -60, 60)  # bits
    return {offset: float(1 / (1 + np.exp2(-above[offset]))) for offset in line.gaps}


def _segmented(
    line: Line, cut: Segmentation, locks: Mapping[int, int], scores: Mapping[int, float]
) -> schema.Segmented:
    symbols = {last: first for first, last in characters(line.spans)}
    gaps = [
        schema.Gap(
            offset=offset,
            cut=any(cut.ends[symbols[i] : i + 1]),
            score=scores.get(offset) if cut.scores is None else cut.scores[i],
            locked=locks.get(offset, 0),  # type: ignore[arg-type]  # the request has 1 and -1 alone
        )
        for offset, i in line.gaps.items()
    ]
    return schema.Segmented(
        symbols=[line.text[slice(*line.spans[i])] for i in symbols.values()],
        offsets=[line.spans[i][0] for i in symbols.values()],
        gaps=gaps,
        pieces=cut.shown,
        segment_length=sum(cut.covered) / len(cut.shown) if cut.covered else None,
        unknown=line.unknown,
    )


def _scored(text: str, score: float | None) -> schema.Scored:
    return schema.Scored(text=text, log_probability=_finite(score))


def _finite(score: float | None) -> float | None:
    """JSON has no infinity, so a score of minus infinity becomes null."""
    return None if score is None or not math.isfinite(score) else score


def _flipped(request: schema.FlipsRequest, version: str, line: Line, one: Flips) -> schema.FlipsAnswer:
    gaps, changes = line.gaps, one.changes
    slopes = None if one.pull is None else one.pull.gradient  # positive: joining is better
    gains = {at: change for at, i in gaps.items() if (change := changes[i]) is not None}
    best = min(gains, key=gains.__getitem__, default=None)
    return schema.FlipsAnswer(
        model=request.model,
        version=version,
        base=one.hard,
        target=one.target,
        offsets=[*gaps],
        changes=[changes[i] for i in gaps.values()],
        gradient=[
            None if slopes is None else -slopes[i] if one.cuts[i] else slopes[i] for i in gaps.values()
        ],
        best=best if best is not None and gains[best] < -NEGLIGIBLE else None,
    )
