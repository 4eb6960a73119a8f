"""Minimum risk training (Shen et al. 2016): the expected loss in score over targets that the model draws."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from sacrebleu.metrics import CHRF
from torch import Tensor
from torch.nn import functional as F

from caesura.config import Config, Training
from caesura.data.batching import Batch, collate_targets
from caesura.data.vocabulary import EOS, PAD, Vocabulary
from caesura.decoders.base import Decoded
from caesura.encoders.base import Encoded
from caesura.evaluation.scores import bleu_metric
from caesura.inference import Translator
from caesura.kernels.precision import full
from caesura.layers.modes import evaluating
from caesura.search.sampling import sample
from caesura.segmenters.base import Segments
from caesura.translator import Loss

Score = Callable[[str, str], float]  # (hypothesis, reference) -> 0 to 1


def risk_loss(model: Translator, batch: Batch, segments: Segments, update: int) -> Loss:
    """E[1 - score] over a sentence's reference and its distinct draws, their probabilities ** alpha renormed.

    Draws depend on the run's seed, the update and the sentence alone. The cross-entropy is the reference's;
    no label is smoothed.
    """
    if batch.trg_out is None or batch.trg_lengths is None:
        raise ValueError("a loss needs a batch with targets")
    settings = model.config.training
    encoded = model.encoder.encode(segments)
    count = len(batch)  # rows of padding are behind
    lengths = batch.trg_lengths.tolist()[:count]
    references = [row[: n - 1] for row, n in zip(batch.trg_out.tolist(), lengths, strict=False)]
    candidates = _draw(model, encoded, batch, references, update)
    owners = [b for b, targets in enumerate(candidates) for _ in targets]
    costs = _costs(candidates, references, model.trg_vocabulary, _score(model.config))
    rows = torch.tensor(owners, device=model.device)
    targets = [target for group in candidates for target in group]
    totals, penalties = _forced(model, encoded.rows(rows), targets)
    first = torch.tensor(np.unique(owners, return_index=True)[1], device=model.device)  # the references
    risk = (_shares(settings.risk_alpha * totals, rows, count) * costs.to(totals)).sum()
    real = batch.trg_lengths > 0
    written = Decoded(segments.vectors, F.pad(penalties[first], (0, len(real) - count)))
    terms = model.auxiliary(segments, written, real, batch)
    return Loss(
        total=sum(terms, risk / (count if batch.whole is None else batch.whole[1])),
        auxiliary=sum(terms, torch.zeros_like(risk)),
        cross_entropy=-totals[first].sum(),
        symbols=batch.trg_lengths.sum(),
        sentences=real.sum(),
        counts=model.counts(segments, batch.src_lengths, real, written, batch.trg_lengths),
    )


def _forced(model: Translator, encoded: Encoded, targets: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] and penalties [N] of the targets."""
    trg_in, trg_out, lengths = (part.to(model.device) for part in collate_targets(targets))
    decoded = model.decoder(encoded, trg_in, lengths)
    costs = F.cross_entropy(
        full(decoded.logits).flatten(0, 1), trg_out.flatten(), ignore_index=PAD, reduction="none"
    )
    return -costs.view(trg_out.shape).sum(1), decoded.penalty


def _draw(
    model: Translator, encoded: Encoded, batch: Batch, references: list[list[int]], update: int
) -> list[list[list[int]]]:
    """For each sentence its reference, then the other targets drawn for it, without </s>."""
    settings = model.config.training
    rows = slice(len(references))
    frozen = encoded.rows(rows).detached()
    # A target twice as long as its reference is not worth drawing.
    limits = 2 * batch.trg_lengths[rows] + 1  # type: ignore[index]
    candidates = [[reference] for reference in references]
    with evaluating(model):
        for turn in range(settings.risk_candidates):
            seeds = [_seed(settings, update, turn, int(index)) for index in batch.indices]
            for targets, drawn in zip(candidates, sample(model.decoder, frozen, limits, seeds), strict=True):
                target = [symbol for symbol in drawn.symbols if symbol != EOS]
                if drawn.finished and target not in targets:
                    targets.append(target)
    return candidates


def _seed(settings: Training, update: int, turn: int, index: int) -> int:
    return int(np.random.SeedSequence([settings.seed, update, turn, index]).generate_state(1)[0])


def _costs(
    candidates: list[list[list[int]]], references: list[list[int]], vocabulary: Vocabulary, score: Score
) -> Tensor:
    """1 - score of every candidate, one after the other."""
    costs: list[float] = []
    for targets, reference in zip(candidates, references, strict=True):
        text = vocabulary.decode(reference)
        costs += [1 - score(vocabulary.decode(target), text) for target in targets]
    return torch.tensor(costs)


def _score(config: Config) -> Score:
    """The model's metric for one sentence; BLEU of effective order, else it is 0 without a shared 4-gram."""
    testing, chrf = config.testing, config.training.risk_metric == "chrf"
    scorer = (
        CHRF(lowercase=testing.lowercase)
        if chrf
        else bleu_metric(testing.bleu_tokenize, testing.lowercase, effective_order=True)
    )
    return lambda hypothesis, reference: scorer.sentence_score(hypothesis, [reference]).score / 100


def _shares(scores: Tensor, owners: Tensor, count: int) -> Tensor:
    """Softmax of `scores` [N] among those with the same of `count` owners [N]."""
    highest = scores.new_full((count,), -torch.inf).scatter_reduce(0, owners, scores.detach(), "amax")
    weights = (scores - highest[owners]).exp()
    return weights / weights.new_zeros(count).scatter_add(0, owners, weights)[owners]
