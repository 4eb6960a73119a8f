"""The model: segmenter, encoder and decoder, and its loss in named parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura.components import build_parts
from caesura.config import Config, EntropyCuts
from caesura.config.cookbook import find_model
from caesura.data.batching import Batch
from caesura.data.cuts import SymbolEnds, TextCuts, text_cuts
from caesura.data.entropy import EntropyModelCuts
from caesura.data.vocabulary import PAD, Vocabulary
from caesura.decoders.base import Decoded, Decoder
from caesura.encoders.base import Encoded, Encoder
from caesura.kernels.smoothing import Smoothed
from caesura.layers.knobs import Knob
from caesura.model_folder import Vocabularies, read_folder, write_folder
from caesura.search.scheduled import scheduled_inputs
from caesura.segmenters.base import BaseSegmenter, Segments
from caesura.segmenters.figures import sums
from caesura.segmenters.imitation import NAME, imitation
from caesura.segmenters.rate import CutCount, count_cuts


@dataclass(frozen=True)
class Loss:
    """The training loss of a batch and its terms; scalars. For a part of a batch: its share of them."""

    total: Tensor  # is differentiated: smoothed cross-entropy, or risk, + auxiliary
    auxiliary: Tensor  # the losses of segmenter and decoder, each a mean over sentences times its weight
    cross_entropy: Tensor  # of the targets as they are, in nats, summed over the batch
    symbols: Tensor  # target symbols, </s> included
    sentences: Tensor
    counts: dict[str, Tensor]  # sums for the log, under the names of `BaseTranslator.counted`


class BaseTranslator(nn.Module):
    """A translation model: any segmenter, encoder and decoder, and the two vocabularies that it uses.

    `caesura.inference.Translator` is this model with text in and text out.
    """

    def __init__(
        self,
        segmenter: BaseSegmenter,
        encoder: Encoder,
        decoder: Decoder[Any],
        vocabularies: tuple[Vocabulary, Vocabulary],
        config: Config,
        cuts: TextCuts | None = None,
    ) -> None:
        super().__init__()
        self.segmenter, self.encoder, self.decoder = segmenter, encoder, decoder
        self.src_vocabulary, self.trg_vocabulary = vocabularies
        self.config = config
        self.cuts = cuts  # of any source, given or imitated; None: the segmenter or a caller says where
        self.tau = Knob(config.model.segmenter.penalty_weight)
        self.decoder_tau = Knob(config.model.decoder.penalty_weight)
        imitated = config.model.segmenter.imitation_weight
        self.imitation = None if imitated is None else Knob(imitated)

    @classmethod
    def build(
        cls,
        config: Config,
        src_vocabulary: Vocabulary,
        trg_vocabulary: Vocabulary,
        learnt_cuts: Vocabulary | EntropyModelCuts | None = None,
    ) -> Self:
        """A new model with random weights as the config describes it.

        `learnt_cuts` are the symbols or the model of characters that `data.cuts` needs, if any.
        """
        parts = build_parts(config, len(src_vocabulary), len(trg_vocabulary), src_vocabulary)
        cuts = text_cuts(config.data.cuts, learnt_cuts)
        return cls(*parts, (src_vocabulary, trg_vocabulary), config, cuts)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, device: str | torch.device = "cpu", settings: Sequence[str] = ()
    ) -> Self:
        """Load a model folder, or a model that comes with Caesura by its name, such as tatoeba-de-en.

        `settings` such as testing.beam_size=10 take the place of its own. Loading it cannot run code.
        """
        return read_folder(find_model(folder), settings, cls.build).to(device).eval()

    def save_pretrained(
        self,
        folder: str | Path,
        dtype: torch.dtype | None = None,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Write config, vocabularies and weights, so that `from_pretrained` gives this model back.

        With a `dtype` such as torch.bfloat16 the weights are rounded to it. `facts`, as JSON can hold them,
        go into their metadata.
        """
        weights = self.state_dict()
        if dtype is not None:
            weights |= {name: weights[name].to(dtype) for name, _ in self.named_parameters()}
        write_folder(Path(folder), self.config, self.vocabularies, weights, facts)

    @property
    def vocabularies(self) -> Vocabularies:
        """Files of a model folder that come from its text: both vocabularies, and what its cuts need."""
        learnt = self.cuts.vocabulary if isinstance(self.cuts, SymbolEnds) else self.cuts
        learnt = learnt if isinstance(learnt, Vocabulary | EntropyModelCuts) else None
        return Vocabularies(self.src_vocabulary, self.trg_vocabulary, learnt)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def given_cuts(self) -> TextCuts | None:
        """The cuts of any source; None: the segmenter or a caller decides."""
        return None if self.config.imitates else self.cuts

    @property
    def target_length(self) -> float | None:
        """The requested characters per segment: of the segmenter, or of given cuts that it follows."""
        cuts = self.config.data.cuts
        if isinstance(cuts, EntropyCuts) and self.segmenter.needs_given():
            return cuts.target
        return self.segmenter.target

    def parameter_count(self) -> int:
        """How many numbers training changes."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def encode(
        self, src: Tensor, src_lengths: Tensor, given: Tensor | None = None
    ) -> tuple[Segments, Encoded]:
        """Segment and encode source symbols [B, T], with cuts `given` as in `Batch.src_cuts`."""
        segments = self.segmenter(src, src_lengths, given=given)
        return segments, self.encoder.encode(segments)

    def forward(self, batch: Batch) -> Loss:
        """Cross-entropy + tau * penalty; the former is smoothed and normalized as configured."""
        return self.loss(batch, self.segmenter(batch.src, batch.src_lengths, given=batch.src_cuts))

    def loss(self, batch: Batch, segments: Segments, sampled: Tensor | None = None) -> Loss:
        """The loss of a batch after its source was segmented; a share `sampled` [] of the input is drawn."""
        if batch.trg_in is None or batch.trg_out is None or batch.trg_lengths is None:
            raise ValueError("a loss needs a batch with targets")
        copies = segments.cuts.copies
        encoded = self.encoder.encode(segments)
        rows = batch.repeated(copies)
        trg_in, trg_out, trg_lengths = rows.trg_in, rows.trg_out, rows.trg_lengths
        assert trg_in is not None
        assert trg_out is not None
        assert trg_lengths is not None
        if sampled is not None:
            trg_in = scheduled_inputs(self.decoder, encoded, trg_in, sampled)
        decoded = self.decoder(encoded, trg_in, trg_lengths)
        logits = decoded.logits.to(torch.promote_types(decoded.logits.dtype, torch.float32)).flatten(0, 1)
        settings = self.config.training
        cross_entropy, smoothed = _cross_entropy(
            logits, trg_out.flatten(), settings.label_smoothing, "sum" if copies == 1 else "none"
        )
        if copies > 1:
            losses = smoothed.view(copies, -1, trg_out.shape[1]).sum(2)  # [K, B]
            cross_entropy = cross_entropy.sum() / copies
            smoothed = losses.sum() / copies + self.segmenter.feedback(segments.cuts, losses).sum()
        symbols, real = batch.trg_lengths.sum(), batch.trg_lengths > 0  # rows of padding have no target
        sentences = real.sum()
        per_symbol, per_sentence = (symbols, sentences) if batch.whole is None else batch.whole.unbind()
        total = smoothed / (per_symbol if settings.normalization == "symbols" else per_sentence)
        terms = self.auxiliary(segments, decoded, real, batch)
        return Loss(
            total=sum(terms, total),
            auxiliary=sum(terms, torch.zeros_like(total)),
            cross_entropy=cross_entropy,
            symbols=symbols,
            sentences=sentences,
            counts=self.counts(segments, batch.src_lengths, real, decoded, batch.trg_lengths),
        )

    def auxiliary(
        self, segments: Segments, decoded: Decoded, real: Tensor, batch: Batch | None = None
    ) -> list[Tensor]:
        """The losses of segmenter and decoder, weighted: means over the sentences that are `real` [B].

        A `batch` may have cuts that the segmenter should learn.
        """
        weights = {"penalty": self.tau, **self.segmenter.loss_weights}
        losses = [(weights[name], loss) for name, loss in segments.cuts.losses.items()]
        if self.imitation is not None and batch is not None and batch.wanted_cuts is not None:
            assert segments.cuts.logits is not None
            loss = imitation(segments.cuts.logits, batch.wanted_cuts, batch.src_lengths)
            losses.append((self.imitation, loss))
        penalty = decoded.penalty.view(segments.cuts.copies, -1).mean(0)
        losses.append((self.decoder_tau, penalty))
        count = real.sum() if batch is None or batch.whole is None else batch.whole[1]
        means = [(weight, (loss * real).sum() / count) for weight, loss in losses]
        return [w.weigh(mean) if isinstance(w, Knob) else w * mean for w, mean in means]

    @property
    def knobs(self) -> dict[str, Knob]:
        """The numbers that training may change, by the names of logs."""
        knobs = {"tau": self.tau, "decoder_tau": self.decoder_tau, NAME: self.imitation}
        return {name: knob for name, knob in knobs.items() if knob is not None} | {**self.segmenter.knobs}

    def follow(self, update: int) -> None:
        """Set the scheduled numbers for the update that follows `update` others."""
        for knob in self.knobs.values():
            knob.follow(update)

    def observe(self, characters: Tensor, segments: Tensor, good: Tensor) -> None:
        """Report an update's cuts to the rate control, which acts on later updates."""
        if self.segmenter.control is not None:
            self.segmenter.control.observe(CutCount(characters, segments), good)

    @property
    def counted(self) -> tuple[str, ...]:
        """The names of the sums in `counts`; a figure has two: its numerator and its denominator."""
        figures = [name for figure in self.segmenter.figures for name in (figure.name, f"{figure.name} of")]
        written = ["output_symbols", "output_segments", "output_live", "decoder_penalty"]
        return "source_symbols", "segments", *figures, *(written if self.decoder.segmenting else ())

    def counts(
        self, segments: Segments, lengths: Tensor, real: Tensor, decoded: Decoded, trg_lengths: Tensor
    ) -> dict[str, Tensor]:
        """Sums over the sentences that are `real` [B], for the log; </s> is never counted.

        With K cuttings, each sum is a mean over the cuttings.
        """
        copies = segments.cuts.copies
        counts = [count.double() / copies for count in count_cuts(segments.ends, lengths.repeat(copies))]
        counts += [*sums(self.segmenter.figures, segments.cuts, lengths, real).flatten()]
        if self.decoder.segmenting:
            nothing = torch.zeros_like(counts[0])
            symbols, written, live = nothing, nothing, nothing
            if decoded.ends is not None:  # minimum risk forces many targets, which do not measure the text
                ends, every = decoded.ends, trg_lengths.repeat(copies)
                symbols, written = (count.double() / copies for count in count_cuts(ends, every))
                live = symbols - (ends.sum() - (every > 0).sum()) / copies
            counts += [symbols, written, live, (decoded.penalty * real.repeat(copies)).sum() / copies]
        return dict(zip(self.counted, counts, strict=True))

    def __call__(self, batch: Batch) -> Loss:
        return super().__call__(batch)


def _cross_entropy(
    logits: Tensor, targets: Tensor, smoothing: float, reduction: str = "sum"
) -> tuple[Tensor, Tensor]:
    """The cross-entropy of the targets [N], 0 for padding, without and with label `smoothing` over all of V.

    One softmax of the logits [N, V] serves both. Both are sums or, with reduction "none", [N].
    """
    if not smoothing:
        cross_entropy = F.cross_entropy(logits, targets, ignore_index=PAD, reduction=reduction)
        return cross_entropy, cross_entropy
    smoothed, logs = Smoothed.apply(logits, targets, smoothing, PAD)
    cross_entropy = F.nll_loss(logs, targets, ignore_index=PAD, reduction=reduction)
    return cross_entropy, smoothed.sum() if reduction == "sum" else smoothed
