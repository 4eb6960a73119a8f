"""Text in, text out: a translator cuts, translates and scores sentences, in batches that fit into memory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caesura.config import FileCuts
from caesura.data.batching import Batch, Ids, collate, collate_targets
from caesura.data.cuts import GivenCuts, places_of
from caesura.data.files import stored
from caesura.data.sentences import KnownCuts, Numbered, numbered, with_given
from caesura.decoders.base import Decoder
from caesura.encoders.base import Encoded
from caesura.errors import InputError, out_of_memory
from caesura.kernels import pick
from caesura.layers.modes import evaluating
from caesura.output import Output, Segmentation, segmentations, uncut
from caesura.search.beam import beam_search
from caesura.search.forced import forced_scores
from caesura.search.graphs import forget
from caesura.search.greedy import greedy
from caesura.search.hypothesis import Hypothesis
from caesura.search.rounds import Check
from caesura.search.sampling import sample
from caesura.segmenters.base import Segments
from caesura.segmenters.figures import per_sentence
from caesura.translator import BaseTranslator

# In translation a batch takes beam * symbols * attention_size numbers per step, however many its sentences;
# with Triton's kernels, it takes only the keys and values of the attention.
SYMBOLS_AT_ONCE, SYMBOLS_ON_A_GPU = 64_000, 500_000

# (decoder, encoded, limits [B], positions of the sentences in the input) -> hypotheses, best first
Search = Callable[[Decoder[Any], Encoded, Tensor, Sequence[int]], list[list[Hypothesis]]]

Result = TypeVar("Result")


class Translator(BaseTranslator):
    """A translation model that takes text and gives text."""

    def translate(
        self, texts: Sequence[str], beam: int | None = None, cuts: Sequence[GivenCuts] | None = None
    ) -> list[str]:
        """Translate sentences with beam search (`beam=1` is greedy); an empty line stays empty.

        `cuts`: see `process`.
        """
        return [output.best for output in self.process(texts, self.searcher(beam), cuts=cuts)]

    def segment(self, texts: Sequence[str], cuts: Sequence[GivenCuts] | None = None) -> list[list[str]]:
        """Cut sentences as the model does; the pieces of a sentence joined give it back.

        `cuts`: see `process`.
        """
        return [output.segmentation.shown for output in self.process(texts, None, cuts=cuts)]

    def score(
        self, sources: Sequence[str], targets: Sequence[str], cuts: Sequence[GivenCuts] | None = None
    ) -> list[float]:
        """The log-probability of each target, </s> included, as a translation of its source.

        A symbol that the target vocabulary does not have counts as <unk>. An empty source has one
        translation, an empty one: 0.0, and -inf for any other. `cuts`: see `process`.
        """
        texts, written = self._pairs(sources, targets, cuts)

        def forced(rows: list[int]) -> list[float]:
            ids = [written.ids[i] for i in rows]
            by_row: dict[int, float] = {}
            with self.precision():
                memory = self._encoded(texts, rows)
                for group in self._groups([len(target) + 1 for target in ids]):  # may be longer than sources
                    encoded = memory.rows(torch.tensor(group, device=self.device))
                    scores = forced_scores(self.decoder, encoded, [ids[i] for i in group])
                    by_row |= zip(group, scores, strict=True)
            return [by_row[i] for i in range(len(rows))]

        scores = self._by_group(texts, forced)
        return [scores.get(i, -math.inf if len(ids) else 0.0) for i, ids in enumerate(written.ids)]

    def segment_targets(
        self, sources: Sequence[str], targets: Sequence[str], progress: Callable[[int], None] | None = None
    ) -> list[Segmentation]:
        """How a decoder that segments cuts given translations, forced through it.

        If a source is an empty line, nothing is forced: the translation stays whole. `progress`: see
        `process`.
        """
        if not self.decoder.segmenting:
            raise ValueError("the decoder of this model does not cut what it writes")
        texts, written = self._pairs(sources, targets)

        def forced(rows: list[int]) -> list[Segmentation]:
            ids, places = [written.ids[i] for i in rows], [written.places[i] for i in rows]
            with self.precision():
                return self._forced(self._encoded(texts, rows), ids, [written[i] for i in rows], places)

        cuts = self._by_group(texts, forced, progress)
        return [
            cuts[i] if i in cuts and len(written.places[i]) else uncut(text) for i, text in enumerate(written)
        ]

    def searcher(self, beam: int | None = None, check: Check | None = None) -> Search:
        """Beam search with the configured settings, or greedy search where the beam is 1.

        `check` is called before each round of the search; it may raise to end it.
        """
        testing = self.config.testing
        width = testing.beam_size if beam is None else beam
        if width == 1:
            return lambda decoder, encoded, limits, _: [
                [h] for h in greedy(decoder, encoded, limits, testing.alpha, testing.beta, check)
            ]
        return lambda decoder, encoded, limits, _: beam_search(
            decoder, encoded, limits, width, testing.alpha, testing.beta, check
        )

    def process(
        self,
        texts: Sequence[str],
        search: Search | None,
        progress: Callable[[int], None] | None = None,
        cuts: Sequence[GivenCuts] | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> list[Output]:
        """Segment and, given a search, translate; sentences of similar length share a batch, order is kept.

        `progress` is called with the number of sentences done after each batch. Texts that are processed
        repeatedly may be `Numbered` in the source vocabulary, which saves looking up their symbols.

        `cuts` has one entry per text: None (as the model decides), character offsets (cut there and nowhere
        else), or a mapping from offsets to 1 (cut) or -1 (do not), which leaves the rest to the model. The
        gap before </s> is always the model's.

        With a `share` (r, n), every n-th batch from the r-th on is processed; other texts count as empty.
        """
        read = self._sources(texts, cuts)
        outputs = self._by_group(read, lambda rows: self._together(read, rows, search), progress, share)
        return [outputs.get(i) or Output(uncut(text), [], []) for i, text in enumerate(read)]

    def _sources(self, texts: Sequence[str], cuts: Sequence[GivenCuts] | None) -> Numbered:
        """The sources with the cuts that they should have."""
        if isinstance(texts, str):
            raise TypeError("a list of sentences is wanted, not one string")
        return with_given(numbered(texts, self.src_vocabulary), cuts, self.given_cuts, self._needs_cuts)

    def _pairs(
        self, sources: Sequence[str], targets: Sequence[str], cuts: Sequence[GivenCuts] | None = None
    ) -> tuple[Numbered, Numbered]:
        """Sources and targets in their vocabularies."""
        if len(sources) != len(targets):
            raise InputError(f"{len(sources)} sources, but {len(targets)} targets")
        return self._sources(sources, cuts), numbered(targets, self.trg_vocabulary)

    @property
    def _needs_cuts(self) -> bool:
        """Whether sentences cannot do without cuts, and the model has no source of them."""
        return not self.cuts_any_text and self.cuts is None

    @torch.no_grad()
    def _by_group(
        self,
        texts: Numbered,
        work: Callable[[list[int]], list[Result]],
        progress: Callable[[int], None] | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> dict[int, Result]:
        """The results of `work` by row, one group of texts at a time; an empty text has no result."""
        results: dict[int, Result] = {}
        with evaluating(self):
            for rows in islice(self._groups(list(map(len, texts.ids))), share[0], None, share[1]):
                results |= zip(rows, self._fitted(texts, rows, work), strict=True)
                if progress:
                    progress(len(rows))
        return results

    def _fitted(
        self, texts: Numbered, rows: list[int], work: Callable[[list[int]], list[Result]]
    ) -> list[Result]:
        """The results of `work` on a group, or on its halves where memory is short."""
        try:
            return work(rows)
        except RuntimeError as problem:
            if not out_of_memory(problem):
                raise
            if len(rows) == 1:
                size = f"a sentence of {len(texts.ids[rows[0]])} symbols"
                remedy = "lower testing.max_input or testing.beam_size"
                raise InputError(f"{size} does not fit into memory; {remedy}") from problem
        # Here, where nothing refers to the results of the attempt any more.
        forget(self.decoder, self.device)
        half = len(rows) // 2
        return [result for part in (rows[:half], rows[half:]) for result in self._fitted(texts, part, work)]

    @property
    def cuts_any_text(self) -> bool:
        """Whether any text can be cut; where `data.cuts` names files, only theirs can."""
        return self.config.imitates or not isinstance(self.config.data.cuts, FileCuts)

    def read_cuts(self, src: str | Path) -> None:
        """Where `data.cuts` names files: read the cuts of `src`, if that is a text of the config."""
        cuts, data = self.config.data.cuts, self.config.data
        for part in () if self.cuts_any_text else ("test", "dev", "train"):
            text, offsets = getattr(data, part), getattr(cuts, part)
            source = text if isinstance(text, Path) or text is None else text.src
            if source is not None and offsets is not None and stored(source) == stored(os.path.abspath(src)):
                self.cuts = KnownCuts.read(src, offsets, data.errors)
                return

    def batch(
        self,
        sources: Sequence[str],
        targets: Sequence[str] | None = None,
        cuts: Sequence[GivenCuts] | None = None,
    ) -> Batch:
        """Sentences on the model's device, their sources cut as `data.cuts` or `cuts` say (see `process`)."""
        texts = self._sources(sources, cuts)
        written = None if targets is None else numbered(targets, self.trg_vocabulary).ids
        pairs = [(ids, None if written is None else written[i]) for i, ids in enumerate(texts.ids)]
        return collate(pairs, cuts=texts.cuts).to(self.device)

    def _together(self, texts: Numbered, rows: list[int], search: Search | None) -> list[Output]:
        batch = self._batch(texts, rows)
        with self.precision():
            segments = self._segments(batch)
            if search:
                memory = self.encoder.encode(segments)
                results = search(self.decoder, memory, self.limits(batch), rows)
                target_cuts = self._cut(memory, results)
            else:  # cuts alone need no encoder, which would take most of the time
                results, target_cuts = [[] for _ in rows], [[] for _ in rows]
        lines, places = [texts[i] for i in rows], [texts.places[i] for i in rows]
        cuts = segmentations(lines, places, segments.ends, segments.weights, segments.scores)
        figures = per_sentence(self.segmenter.figures, segments.cuts, batch.src_lengths)
        cuts = [replace(cut, figures=sums) for cut, sums in zip(cuts, figures, strict=True)]
        return [
            Output(cut, hypotheses, [self.trg_vocabulary.decode(h.symbols) for h in hypotheses], targets)
            for cut, hypotheses, targets in zip(cuts, results, target_cuts, strict=True)
        ]

    def _batch(self, texts: Numbered, rows: list[int]) -> Batch:
        marks = None if texts.cuts is None else [texts.cuts[i] for i in rows]
        return collate([(texts.ids[i], None) for i in rows], cuts=marks).to(self.device)

    def _encoded(self, texts: Numbered, rows: list[int]) -> Encoded:
        segments = self._segments(self._batch(texts, rows))
        return self.encoder.encode(segments)

    def _segments(self, batch: Batch) -> Segments:
        if batch.src_cuts is None:
            return self.segmenter(batch.src, batch.src_lengths)
        try:
            return self.segmenter(batch.src, batch.src_lengths, given=batch.src_cuts)
        except ValueError as problem:  # of one that takes no cuts
            raise InputError(str(problem)) from problem

    def precision(self) -> AbstractContextManager[None]:
        """Autocast by `testing.precision`; float32 leaves a caller's autocast alone."""
        if self.config.testing.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _cut(self, memory: Encoded, results: list[list[Hypothesis]]) -> list[list[Segmentation]]:
        """How the decoder cut the hypotheses of each sentence: one forced pass, if it cuts at all."""
        every = [(row, h) for row, hypotheses in enumerate(results) for h in hypotheses]
        if not self.decoder.segmenting or not every:
            return [[] for _ in results]
        rows = memory.rows(torch.tensor([row for row, _ in every], device=self.device))
        texts, spans = zip(*(self.trg_vocabulary.decode_spans(h.symbols) for _, h in every), strict=True)
        cuts = iter(
            self._forced(rows, [h.symbols[:-1] for _, h in every], texts, list(map(places_of, spans)))
        )
        return [[next(cuts) for _ in hypotheses] for hypotheses in results]

    def _forced(
        self, memory: Encoded, ids: Sequence[Ids], texts: Sequence[str], places: Sequence[NDArray[np.int32]]
    ) -> list[Segmentation]:
        """How a decoder that segments cuts texts, given with their symbols and the places of these."""
        trg_in, _, lengths = (part.to(self.device) for part in collate_targets(ids))
        decoded = self.decoder(memory, trg_in, lengths)
        assert decoded.ends is not None
        assert decoded.weights is not None
        return segmentations(texts, places, decoded.ends, decoded.weights, decoded.scores)

    def _groups(self, lengths: list[int]) -> Iterator[list[int]]:
        """Rows of similar length: at most `testing.batch_size`, and not too many symbols."""
        rows: list[int] = []
        lean = self.decoder.lean and pick(self.device)[0] == "triton"
        most = SYMBOLS_ON_A_GPU if lean else SYMBOLS_AT_ONCE
        for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
            full = len(rows) >= self.config.testing.batch_size
            if rows and (full or (len(rows) + 1) * lengths[i] > most):
                yield rows
                rows = []
            if lengths[i]:
                rows.append(i)
        if rows:
            yield rows

    def limits(self, batch: Batch) -> Tensor:
        """[B]: the longest output of each sentence, so that no search can hang."""
        testing = self.config.testing
        ratio = 2.0 if testing.max_output_ratio is None else testing.max_output_ratio
        return (batch.src_lengths * ratio).long() + testing.max_output_extra


def sampler(temperature: float, seed: int) -> Search:
    """A search that draws, each line by a seed of its own."""

    def search(decoder: Any, encoded: Any, limits: Any, positions: Any) -> Any:
        seeds = [seed * 1_000_003 + position for position in positions]
        return [[h] for h in sample(decoder, encoded, limits, seeds, temperature)]

    return search


def search_settings(model: Translator, beam: int | None) -> dict[str, Any]:
    """The settings that a score depends on besides the model and the text, for JSON."""
    testing = model.config.testing
    width = testing.beam_size if beam is None else beam
    return {"beam": width, "alpha": testing.alpha, "beta": testing.beta, "precision": testing.precision}


def search_name(model: Translator, beam: int | None) -> str:
    """The name of the search; a greedy one does not rank whole sentences."""
    beam, alpha, beta, precision = search_settings(model, beam).values()
    how = "greedy search" if beam == 1 else f"beam {beam}, alpha {alpha:g}, beta {beta:g}"
    return f"{how}, {precision}"
