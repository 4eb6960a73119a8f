"""Translator = segmenter + encoder + decoder: its loss in named parts, and text in, text out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from caesura import __version__
from caesura.config import Config, check_options, load_config
from caesura.data.batching import Batch, collate
from caesura.data.files import checksum, refuse_links, write_beside
from caesura.data.tensors import load_tensors, read_facts, save_tensors
from caesura.data.vocabulary import EOS, MAX_BYTES, PAD, SPECIALS, Vocabulary, load_vocabulary
from caesura.data.words import WORDS
from caesura.decoders.base import DECODERS, Decoder
from caesura.encoders.base import ENCODERS, Encoded, Encoder
from caesura.errors import InputError
from caesura.kernels import pick
from caesura.kernels.graphs import out_of_memory
from caesura.output import Output, Segmentation, segmentation, segmentations, uncut
from caesura.search.beam import beam_search
from caesura.search.graphs import forget
from caesura.search.greedy import greedy
from caesura.search.hypothesis import Hypothesis
from caesura.search.scheduled import scheduled_inputs
from caesura.segmenters.base import SEGMENTERS, Segmenter, Segments, count_cuts

CONFIG, WEIGHTS, SRC_VOCABULARY, TRG_VOCABULARY = (
    "config.yaml",
    "model.safetensors",
    "src.vocab.json",
    "trg.vocab.json",
)

_DESCRIPTION = (CONFIG, SRC_VOCABULARY, TRG_VOCABULARY)

# Of a model folder; every change of its config's keys is another one, for they are all written out.
# 1: the weights' metadata has the checksums of the other files; folders before have none.
# 2: data.max_chars and, of training, warmup, label_smoothing, max_skipped, poison, checkpoint_minutes.
# 3: training.decay, and training.patience may be null.
FORMAT = 3

# In translation a batch takes beam * symbols * attention_size numbers a step, however long its sentences are;
# where Triton's kernels keep none of these, the attention's keys and values.
SYMBOLS_AT_ONCE, SYMBOLS_ON_A_GPU = 64_000, 500_000

# (decoder, encoded, limits [B], positions of the sentences in the input) -> hypotheses, best first
Search = Callable[[Decoder[Any], Encoded, Tensor, Sequence[int]], list[list[Hypothesis]]]


@dataclass(frozen=True)
class Loss:
    """The training loss of a batch and its parts; scalars but for the counts."""

    total: Tensor  # what is differentiated: smoothed cross-entropy, or risk, + tau * penalty of both parts
    cross_entropy: Tensor  # of the targets as they are, in nats, summed over the batch
    symbols: Tensor  # target symbols, </s> included
    sentences: Tensor
    penalty: Tensor  # segmenter's, mean over sentences, before tau
    remainder: Tensor  # true remainders over symbols, mean over sentences (docs/paper_notes.md, 4)
    decoder_penalty: Tensor
    cuts: Tensor  # [3] of the source, as count_cuts has them
    output_cuts: Tensor  # [3] of the targets; zeros where the decoder does not cut


class Translator(nn.Module):
    """A translation model: any segmenter, encoder and decoder, and the two vocabularies that it uses."""

    def __init__(
        self,
        segmenter: Segmenter,
        encoder: Encoder,
        decoder: Decoder[Any],
        vocabularies: tuple[Vocabulary, Vocabulary],
        config: Config,
    ) -> None:
        super().__init__()
        self.segmenter, self.encoder, self.decoder = segmenter, encoder, decoder
        self.src_vocabulary, self.trg_vocabulary = vocabularies
        self.config = config

    @classmethod
    def build(cls, config: Config, src_vocabulary: Vocabulary, trg_vocabulary: Vocabulary) -> Translator:
        """A new model with random weights as the config describes it."""
        parts = _components(config, len(src_vocabulary), len(trg_vocabulary))
        return cls(*parts, (src_vocabulary, trg_vocabulary), config)

    @classmethod
    def from_pretrained(
        cls, folder: str | Path, device: str | torch.device = "cpu", settings: Sequence[str] = ()
    ) -> Translator:
        """Load a model folder, with `settings` such as testing.beam_size=10 in place of its own.

        Everything in it is data, nothing in it is run.
        """
        folder = Path(folder)
        for setting in settings:
            if not setting.startswith("testing."):
                raise InputError(f"--set {setting}: a trained model has only testing settings to change")
        if not folder.is_dir():
            raise InputError(
                f"{folder}: no such model folder; `caesura train CONFIG --out {folder}` makes one"
            )
        for name in (*_DESCRIPTION, WEIGHTS):
            if not (folder / name).is_file():
                young = name == WEIGHTS and (folder / "checkpoints").is_dir()
                hint = "; training has not reached its first validation yet" if young else ""
                raise InputError(f"{folder}: not a complete model folder, {name} is missing{hint}")
        refuse_links([folder / name for name in (*_DESCRIPTION, WEIGHTS)], folder)
        weights = _checked_weights(folder)
        vocabularies = load_vocabulary(folder / SRC_VOCABULARY), load_vocabulary(folder / TRG_VOCABULARY)
        with torch.device("meta"):  # no memory is taken for what the weights do not bear out
            model = cls.build(load_config(folder / CONFIG, settings, bases=False), *vocabularies)
        model._take(weights, folder / WEIGHTS)
        return model.to(device).eval()

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config, vocabularies and weights, so that `from_pretrained` gives this model back.

        The weights come last, with the checksums of the rest: they are what makes a folder another model.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.src_vocabulary.save(folder / SRC_VOCABULARY)
        self.trg_vocabulary.save(folder / TRG_VOCABULARY)
        with write_beside(folder / CONFIG) as file:
            file.write(self.config.dump().encode())
        there = [name for name in (*_DESCRIPTION, WORDS) if (folder / name).is_file()]
        files = {name: checksum(folder / name) for name in there}
        facts = {"format": FORMAT, "version": __version__, "files": files}
        save_tensors(folder / WEIGHTS, self.state_dict(), facts)

    def _take(self, weights: dict[str, Tensor], path: Path) -> None:
        """Have weights whose names and shapes are those of this model; others are refused."""
        own = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        theirs = {name: tuple(value.shape) for name, value in weights.items()}
        if own != theirs:
            name = sorted(dict(own.items() ^ theirs.items()))[0]
            wanted, found = own.get(name, "nothing"), theirs.get(name, "nothing")
            raise InputError(f"{path}: does not fit {CONFIG}: {name} should be {wanted}, is {found}")
        types = {value.dtype for value in weights.values()}
        if len(types) > 1 or not types <= {torch.float32, torch.float64, torch.bfloat16, torch.float16}:
            raise InputError(
                f"{path}: weights of type {', '.join(sorted(map(str, types)))}; should be float32"
            )
        self.load_state_dict(weights, assign=True)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def parameter_count(self) -> int:
        """How many numbers training changes."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def encode(self, src: Tensor, src_lengths: Tensor) -> tuple[Segments, Encoded]:
        """Segment and encode source symbols [B, T]."""
        segments = self.segmenter(src, src_lengths)
        return segments, self.encoder(segments.vectors, segments.lengths)

    def forward(self, batch: Batch) -> Loss:
        """Cross-entropy + tau * penalty; the former is smoothed and normalized as configured."""
        return self.loss(batch, self.segmenter(batch.src, batch.src_lengths))

    def loss(self, batch: Batch, segments: Segments, sampled: Tensor | None = None) -> Loss:
        """The loss of a batch whose source is segmented; a share `sampled` [] of what is fed is drawn."""
        if batch.trg_in is None or batch.trg_out is None or batch.trg_lengths is None:
            raise ValueError("a loss needs a batch with targets")
        encoded = self.encoder(segments.vectors, segments.lengths)
        trg_in = batch.trg_in
        if sampled is not None:
            trg_in = scheduled_inputs(self.decoder, encoded, trg_in, sampled)
        decoded = self.decoder(encoded, trg_in, batch.trg_lengths)
        logits = decoded.logits.to(torch.promote_types(decoded.logits.dtype, torch.float32)).flatten(0, 1)
        settings, model = self.config.training, self.config.model
        cross_entropy, smoothed = _cross_entropy(logits, batch.trg_out.flatten(), settings.label_smoothing)
        symbols, real = batch.trg_lengths.sum(), batch.trg_lengths > 0  # rows of padding have no target
        sentences = real.sum()
        penalty = (segments.penalty * real).sum() / sentences
        decoder_penalty = (decoded.penalty * real).sum() / sentences
        total = smoothed / (symbols if settings.normalization == "symbols" else sentences)
        total = total + model.segmenter.tau * penalty + model.decoder.tau * decoder_penalty
        shares = (segments.weights * segments.ends).sum(1) / batch.src_lengths
        remainder = (shares * real).sum() / sentences
        cuts = count_cuts(segments.ends, batch.src_lengths)
        written = (
            torch.zeros_like(cuts) if decoded.ends is None else count_cuts(decoded.ends, batch.trg_lengths)
        )
        return Loss(
            total, cross_entropy, symbols, sentences, penalty, remainder, decoder_penalty, cuts, written
        )

    def __call__(self, batch: Batch) -> Loss:
        return super().__call__(batch)

    def translate(self, texts: Sequence[str], beam: int | None = None) -> list[str]:
        """Translate sentences with beam search (`beam=1` is greedy); an empty line stays empty."""
        return [output.best for output in self.process(texts, self.searcher(beam))]

    def segment(self, texts: Sequence[str]) -> list[list[str]]:
        """Cut sentences as the model does; the pieces of a sentence joined give it back."""
        return [output.segmentation.pieces for output in self.process(texts, None)]

    def segment_targets(self, sources: Sequence[str], targets: Sequence[str]) -> list[Segmentation]:
        """How a decoder that segments cuts given translations, forced through it.

        Where the source is an empty line nothing is forced: the translation stays whole.
        """
        if not self.decoder.segmenting:
            raise ValueError("the decoder of this model does not cut what it writes")
        known = [self.trg_vocabulary.encode_spans(text) for text in targets]
        outputs = self.process(
            sources,
            lambda _, __, ___, rows: [[Hypothesis((*known[i][0], EOS), math.nan, math.nan)] for i in rows],
        )
        cuts = []
        for text, (_, spans), output in zip(targets, known, outputs, strict=True):
            if spans and output.targets:
                found = output.targets[0]  # of what the ids spell: <unk> for an unknown character
                cuts.append(segmentation(text, spans, found.ends, found.weights, found.scores))
            else:
                cuts.append(uncut(text))
        return cuts

    def searcher(self, beam: int | None = None) -> Search:
        """Beam search with the configured settings, or greedy search where the beam is 1."""
        testing = self.config.testing
        width = testing.beam_size if beam is None else beam
        if width == 1:
            return lambda decoder, encoded, limits, _: [
                [h] for h in greedy(decoder, encoded, limits, testing.alpha, testing.beta)
            ]
        return lambda decoder, encoded, limits, _: beam_search(
            decoder, encoded, limits, width, testing.alpha, testing.beta
        )

    @torch.no_grad()
    def process(
        self,
        texts: Sequence[str],
        search: Search | None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Output]:
        """Segment and, given a search, translate; sentences of similar length share a batch, order is kept.

        `progress` is called with the number of sentences done after each batch.
        """
        if isinstance(texts, str):
            raise TypeError("a list of sentences is wanted, not one string")
        was_training = self.training
        self.eval()
        try:
            encoded = [self.src_vocabulary.encode(text) for text in texts]
            outputs: dict[int, Output] = {}
            for i, ids in enumerate(encoded):
                if not ids:  # nothing to read, nothing to write
                    outputs[i] = Output(uncut(texts[i]), [], [])
            for rows in self._groups(list(map(len, encoded))):
                outputs |= zip(rows, self._fitted(texts, encoded, rows, search), strict=True)
                if progress:
                    progress(len(rows))
            return [outputs[i] for i in range(len(texts))]
        finally:
            self.train(was_training)

    def _fitted(
        self, texts: Sequence[str], encoded: list[list[int]], rows: list[int], search: Search | None
    ) -> list[Output]:
        """What `process` finds of a group, or of its halves where memory is short."""
        try:
            return self._together(texts, encoded, rows, search)
        except RuntimeError as problem:
            if not out_of_memory(problem):
                raise
            if len(rows) == 1:
                size = f"a sentence of {len(encoded[rows[0]])} symbols"
                remedy = "lower testing.max_input or testing.beam_size"
                raise InputError(f"{size} does not fit into memory; {remedy}") from problem
        # Here, where nothing holds on to what the attempt has computed.
        forget(self.decoder, self.device)
        half = len(rows) // 2
        return [
            output
            for part in (rows[:half], rows[half:])
            for output in self._fitted(texts, encoded, part, search)
        ]

    def _together(
        self, texts: Sequence[str], encoded: list[list[int]], rows: list[int], search: Search | None
    ) -> list[Output]:
        batch = collate([(encoded[i], None) for i in rows]).to(self.device)
        with self._precision():
            segments, memory = self.encode(batch.src, batch.src_lengths)
            found = search(self.decoder, memory, self._limits(batch), rows) if search else [[] for _ in rows]
            written = self._cut(memory, found)
        spans = [(texts[i], self.src_vocabulary.encode_spans(texts[i])[1]) for i in rows]
        cuts = segmentations(spans, segments.ends, segments.weights, segments.scores)
        return [
            Output(cut, hypotheses, [self.trg_vocabulary.decode(h.symbols) for h in hypotheses], targets)
            for cut, hypotheses, targets in zip(cuts, found, written, strict=True)
        ]

    def _precision(self) -> AbstractContextManager[None]:
        """What `testing.precision` wants; float32 leaves a caller's autocast as it is."""
        if self.config.testing.precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _cut(self, memory: Encoded, found: list[list[Hypothesis]]) -> list[list[Segmentation]]:
        """How the decoder cut the hypotheses of each sentence: one forced pass, where it cuts at all."""
        every = [(row, h) for row, hypotheses in enumerate(found) for h in hypotheses]
        if not self.decoder.segmenting or not every:
            return [[] for _ in found]
        rows = torch.tensor([row for row, _ in every], device=self.device)
        own = Encoded(memory.states[rows], memory.lengths[rows], memory.summary[rows])
        batch = collate([((), h.symbols[:-1]) for _, h in every]).to(self.device)
        assert batch.trg_in is not None
        assert batch.trg_lengths is not None
        decoded = self.decoder(own, batch.trg_in, batch.trg_lengths)
        assert decoded.ends is not None
        assert decoded.weights is not None
        spans = [self.trg_vocabulary.decode_spans(h.symbols) for _, h in every]
        cuts = iter(segmentations(spans, decoded.ends, decoded.weights, decoded.scores))
        return [[next(cuts) for _ in hypotheses] for hypotheses in found]

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

    def _limits(self, batch: Batch) -> Tensor:
        """[B]: the longest output of each sentence, so that no search can hang."""
        testing = self.config.testing
        ratio = 2.0 if testing.max_output_ratio is None else testing.max_output_ratio
        return (batch.src_lengths * ratio).long() + testing.max_output_extra


def _cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums over the targets [N] that are no padding: as they are, and with `smoothing` of each for all of V.

    One softmax of the logits [N, V] serves both.
    """
    logs = F.log_softmax(logits, 1)
    cross_entropy = F.nll_loss(logs, targets, ignore_index=PAD, reduction="sum")
    if not smoothing:
        return cross_entropy, cross_entropy
    even = -logs.mean(1).masked_fill(targets == PAD, 0).sum()
    return cross_entropy, (1 - smoothing) * cross_entropy + smoothing * even


def _checked_weights(folder: Path) -> dict[str, Tensor]:
    """The weights of a model folder, in which every file is as it was when they were saved."""
    path = folder / WEIGHTS
    facts = read_facts(path)
    number = facts.get("format", 0)
    if not isinstance(number, int) or number > FORMAT:
        raise InputError(
            f"{path}: a model of format {_brief(number)}, by caesura {_brief(facts.get('version'))}; this is "
            f"{__version__}, "
            f"which reads up to {FORMAT}: use that version or a later one"
        )
    for name in _DESCRIPTION:
        if (folder / name).stat().st_size > MAX_BYTES:
            raise InputError(f"{folder / name}: larger than {MAX_BYTES >> 20} MiB; not of a model folder")
    weights, facts = load_tensors(path)
    files = facts.get("files")
    for name in _DESCRIPTION if number else ():
        if not isinstance(files, dict) or files.get(name) != checksum(folder / name):
            hint = "; to change how it translates, use --set testing.KEY=VALUE" if name == CONFIG else ""
            raise InputError(
                f"{folder / name}: damaged or changed: not the file that {WEIGHTS} was saved with{hint}"
            )
    return weights


def _brief(value: object) -> str:
    """What a stranger wrote, so that it can be printed."""
    shown = repr(value)[1:-1] if isinstance(value, str) else str(value) if isinstance(value, int) else "?"
    return shown if len(shown) <= 20 else f"{shown[:20]}..."


def resolve(config: Config) -> Config:
    """The config with every default of its components written out; what cannot be built is refused here."""
    with torch.device("meta"):  # shapes without memory
        _components(config, len(SPECIALS) + 1, len(SPECIALS) + 1)
    parts = {}
    for part, (registry, given) in _PARTS.items():
        options = check_options(config, f"model.{part}", _class(config, part, registry), given)
        parts[part] = getattr(config.model, part).model_copy(update=options)
    return config.model_copy(update={"model": config.model.model_copy(update=parts)})


# Where the classes of each part are registered, and which of their arguments the program supplies.
_PARTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "segmenter": (SEGMENTERS, ("vocab_size",)),
    "encoder": (ENCODERS, ("input_dim",)),
    "decoder": (DECODERS, ("vocab_size", "memory_dim", "summary_dim")),
}


def _components(config: Config, src_size: int, trg_size: int) -> tuple[Segmenter, Encoder, Decoder[Any]]:
    segmenter = _component(config, "segmenter", (src_size,))
    encoder = _component(config, "encoder", (segmenter.output_dim,))
    decoder = _component(config, "decoder", (trg_size, encoder.output_dim, encoder.summary_dim))
    with config.blame("model.decoder"):
        decoder.join(segmenter)
    return segmenter, encoder, decoder


def _component(config: Config, part: str, supplied: tuple[int, ...]) -> Any:
    """The configured segmenter, encoder or decoder, with its options checked against its constructor."""
    registry, given = _PARTS[part]
    target = _class(config, part, registry)
    options = check_options(config, f"model.{part}", target, given)
    with config.blame(f"model.{part}"):
        return target(**dict(zip(given, supplied, strict=True)), **options)


def _class(config: Config, part: str, registry: dict[str, Any]) -> Any:
    """The class that a part's `type` names; only registered ones, so that no config can run code."""
    name = getattr(config.model, part).type
    if name not in registry:
        known = ", ".join(sorted(registry))
        raise config.error(f"model.{part}.type", f"unknown {part} '{name}'; there are {known}")
    target = registry[name]
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        target = getattr(import_module(module), attribute)
    return target
