"""Cuts where a small GRU finds the next character hard to predict."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from caesura.data.character_gru import CLASSES, SIZE, GruModel, shapes
from caesura.data.entropy import DIGEST, MAX_BYTES, EntropyModelCuts, find_threshold
from caesura.data.files import refuse_links
from caesura.data.ngrams import Floats
from caesura.errors import InputError

if TYPE_CHECKING:
    from caesura.config import EntropyCuts
    from caesura.data.tensors import Kinds

FORMAT = 1
SAMPLE = 50_000  # lines of the text, drawn at random, that the GRU is trained on
MEASURED = 10_000  # lines of the sample on which the threshold is set


class GruCuts(EntropyModelCuts):
    """Cuts by the entropy of a GRU."""

    one_process = True

    def __init__(self, model: GruModel, threshold: float, rise: bool = False, text: str = "") -> None:
        super().__init__(threshold, rise, text)
        self.model = model

    @classmethod
    def learn(
        cls,
        lines: Iterable[str],
        settings: EntropyCuts,
        text: str = "",
        device: str = "cpu",
        progress: Callable[[int], None] = lambda lines: None,
    ) -> GruCuts:
        """Train a GRU, and find the threshold that cuts the text into segments of the requested length.

        Of a long text, only a sample is used. `progress` gets the number of lines trained on so far.
        """
        from caesura.data.character_gru_training import train_gru

        assert settings.size is not None  # the config fills both in
        assert settings.updates is not None
        rng = random.Random(1)
        sample = _sample(lines, rng)
        if not sample:
            raise ValueError("need text to train a GRU on")
        model = train_gru(sample, settings.size, settings.updates, device, progress)
        cuts = cls(model, 0.0, settings.by == "rise", text)
        measured = sample if len(sample) <= MEASURED else rng.sample(sample, MEASURED)
        values = np.concatenate([scores[1:] for scores in cuts.several_scores(measured)])
        characters = sum(map(len, measured))
        ones = np.ones(len(values), np.int64)
        cuts.threshold = find_threshold(values, ones, len(measured), characters, settings.target)
        return cuts

    def entropies(self, texts: Sequence[str]) -> list[Floats]:
        return self.model.entropies(texts)

    @property
    def fingerprint(self) -> list[Any]:
        return ["entropy", self._digest]

    @cached_property
    def _digest(self) -> str:
        content = hashlib.blake2b(f"gru {FORMAT} {self.threshold!r} {self.rise}".encode(), digest_size=16)
        for values in (self.model.alphabet, *(self.model.weights[name] for name in sorted(shapes(0, 0)))):
            content.update(f"\n{values.dtype.str} {values.shape}\n".encode())
            content.update(values.tobytes())
        return content.hexdigest()

    def save(self, path: str | Path) -> None:
        """Write weights and threshold as a .safetensors."""
        import torch

        from caesura.data.tensors import save_tensors

        arrays = {"alphabet": self.model.alphabet.astype(np.int32), **self.model.weights}
        tensors = {name: torch.from_numpy(values.copy()) for name, values in arrays.items()}
        save_tensors(Path(path), tensors, {"format": FORMAT, "threshold": self.threshold, "text": self.text})


def load_gru(path: Path, settings: EntropyCuts) -> GruCuts:
    """Read a file that `GruCuts.save` wrote; refuse any other file, and one with other settings."""
    from caesura.data.tensors import DamagedError, load_tensors

    refuse_links([path], path.parent)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES // 10**6} MB")
        tensors, facts = load_tensors(path, _expect)
        if facts.get("format") != FORMAT:
            raise ValueError(f"its format should be {FORMAT}")
        threshold, text = facts.get("threshold"), facts.get("text")
        if not isinstance(threshold, float) or not np.isfinite(threshold):
            raise ValueError("its threshold should be a finite number")
        if not isinstance(text, str) or (text and not DIGEST.fullmatch(text.encode("utf-8", "replace"))):
            raise ValueError("its text should be a digest")
        weights = {name: tensor.numpy() for name, tensor in tensors.items()}
        alphabet = weights.pop("alphabet")
        if (np.diff(alphabet) <= 0).any() or alphabet[0] < 0 or alphabet[-1] > 0x10FFFF:
            raise ValueError("alphabet should be code points in rising order")
        model = GruModel(alphabet.astype(np.uint32), weights)
    except (DamagedError, ValueError, OSError) as problem:
        reason = str(problem).removeprefix(f"{path}: ")
        raise InputError(f"{path}: not a file of a GRU: {reason}") from problem
    if model.size != settings.size:
        raise InputError(
            f"{path}: a GRU of size {model.size}; data.cuts.size of this model is {settings.size}"
        )
    return GruCuts(model, threshold, settings.by == "rise", text)


def _expect(kinds: Kinds) -> None:
    """Refuse tensors that are not a GRU's, before allocating memory for them."""
    tensors = {name: (str(kind.dtype), kind.shape) for name, kind in kinds.items()}
    rows, columns = (tensors[name][1] if name in tensors else () for name in ("alphabet", "hidden"))
    if len(rows) != 1 or not 1 <= rows[0] <= CLASSES or len(columns) != 2 or not 1 <= columns[1] <= SIZE:
        raise ValueError(f"it should have an alphabet of at most {CLASSES} and a state of at most {SIZE}")
    expected = {name: ("torch.float32", shape) for name, shape in shapes(rows[0] + 2, columns[1]).items()}
    if tensors != expected | {"alphabet": ("torch.int32", rows)}:
        raise ValueError("its tensors should have the names, types and shapes of a GRU's")


def _sample(lines: Iterable[str], rng: random.Random) -> list[str]:
    """A uniform sample of the lines that are not only white space; all of them if they are few."""
    kept: list[str] = []
    seen = 0
    for line in lines:
        if line.strip():
            seen += 1
            if len(kept) < SAMPLE:
                kept.append(line)
            elif (at := rng.randrange(seen)) < SAMPLE:
                kept[at] = line
    return kept
