"""Average the weights of several models: a run's last or best checkpoints, or model folders.

Only parameters are averaged. Buffers, such as a rate's counts or a scheduled number, come from the newest
model. A threshold of cuts has to fit the weights, so it is set on training text again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import Tensor

from caesura import __version__
from caesura.components import resolve
from caesura.config import Config, differences
from caesura.data.cache import Cache
from caesura.data.corpus import Corpus
from caesura.data.files import (
    checksum,
    parts,
    refuse_links,
    refuse_odd,
    refuse_unwritable,
    stored,
    write_whole,
)
from caesura.data.held import make_folder
from caesura.data.tensors import DamagedError, load_tensors, read_facts
from caesura.data.words import WORDS
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.model_folder import CONFIG, LEARNT_CUTS, SRC_VOCABULARY, TRG_VOCABULARY, WEIGHTS, expect_weights
from caesura.training.card import CARD, introduction, shown_place, usage
from caesura.training.changes import changes_since
from caesura.training.checkpoint import BEST, CHECKPOINTS, list_checkpoints, load_weights
from caesura.training.optimizer import build_adam
from caesura.training.prepare import text_files, training_numbers
from caesura.training.threshold import settle

By = Literal["last", "best"]
Row = dict[str, Any]  # the record of one averaged model
KEYS = {"last": "training.keep_last", "best": "training.keep_best"}
WHERE = {"last": CHECKPOINTS, "best": BEST}
SCORES = "bleu", "chrf", "update"
LISTED = 5  # differences that a message names
# Models that differ in these have no weights in common, not even at the start.
SAME = (
    *("model.", "training.seed:", "data.joint:", "data.cuts"),
    *(f"data.{side}.{key}:" for side in ("src", "trg") for key in ("lang", "level")),
)
OWN = {CONFIG, SRC_VOCABULARY, TRG_VOCABULARY, *LEARNT_CUTS, WORDS, CARD}  # written before the weights


class Mean:
    """A mean of tensors by name, summed in float64; its memory does not grow with the number of models."""

    def __init__(self, names: Collection[str]) -> None:
        self.names, self.count = names, 0
        self._sums: dict[str, Tensor] = {}

    def add(self, tensors: Mapping[str, Tensor]) -> None:
        """Add one model."""
        self.count += 1
        for name in self.names:
            value = tensors[name].detach().double()
            self._sums[name] = self._sums[name].add_(value) if name in self._sums else value.clone()

    def result(self) -> dict[str, Tensor]:
        """The means, in float64."""
        return {name: value / self.count for name, value in self._sums.items()}


def average_run(folder: Path, by: By, count: int, out: Path, say: Callable[[str], None]) -> list[Row]:
    """Write the mean of a run's last or best `count` checkpoints as a model folder; returns their records."""
    model = Translator.from_pretrained(folder)
    _refuse_taken(out, model.config)
    mean, rows = _mean_of(model), []
    weights: dict[str, Tensor] = {}
    try:
        chosen = _chosen(folder, by, count)
        for weights, row in _read(chosen, by, model):  # the oldest first
            mean.add(weights)
            rows.append(row)
    except DamagedError as problem:
        remedy = "average fewer, or, if a training is at work there, try again"
        raise InputError(f"{problem}; {remedy}") from problem
    model.load_state_dict({**weights, **mean.result()})
    title = {"last": "the last", "best": "the best on dev"}[by]
    what = f"of {count} checkpoints of `{folder.resolve().name}`, {title}"
    _write(model, folder, out, {"by": by, "run": folder.resolve().name, "of": rows}, what, say)
    return rows


def average_folders(folders: Sequence[Path], out: Path, say: Callable[[str], None]) -> list[Row]:
    """Write the mean of models that began with the same weights; returns their records."""
    model = Translator.from_pretrained(folders[0])
    _refuse_taken(out, model.config)
    mean = _mean_of(model)
    mean.add(model.state_dict())
    for folder in folders[1:]:
        other = Translator.from_pretrained(folder)
        _refuse_unmatched(folders[0], model, folder, other)
        mean.add(other.state_dict())
    model.load_state_dict({**model.state_dict(), **mean.result()})
    rows: list[Row] = [{"folder": folder.resolve().name} for folder in folders]
    _write(model, folders[0], out, {"by": "folders", "of": rows}, f"of {len(rows)} models", say)
    return rows


def _mean_of(model: Translator) -> Mean:
    return Mean({name for name, _ in model.named_parameters(remove_duplicate=False)})


def _chosen(folder: Path, by: By, count: int) -> list[Path]:
    """The files to average, the oldest first."""
    home = folder / WHERE[by]
    paths = [path for path in list_checkpoints(home) if path.stem.strip("0")]  # update 0 has learned nothing
    refuse_links([home, *paths], folder)
    refuse_odd(paths)
    if len(paths) < count:
        fewer = f", or take --{by} {len(paths)}" if paths else ""
        number = f"{len(paths)} checkpoint{'s' if len(paths) != 1 else ''}"
        raise InputError(
            f"{home}: {number}, and --{by} {count} asks for {count}; train with {KEYS[by]}={count}{fewer}"
        )
    if by == "last":
        return paths[-count:]
    ranks = {path: _score(path) for path in paths}
    return sorted(sorted(paths, key=ranks.__getitem__)[-count:])


def _score(path: Path) -> tuple[Any, Any, Any]:
    """The key by which the best are chosen; of equal ones, the later is better."""
    facts = read_facts(path)
    bleu, chrf, update = (facts.get(name) for name in SCORES)
    if not all(isinstance(value, int | float) for value in (bleu, chrf, update)):
        raise InputError(f"{path}: has no scores of a validation; remove it")
    return bleu, chrf, update


def _read(paths: Sequence[Path], by: By, model: Translator) -> Iterator[tuple[dict[str, Tensor], Row]]:
    """The weights and the record of each file; one file is in memory at a time."""
    check = partial(_refuse_strange, resolve(model.config))
    optimizer = build_adam(model, model.config.training)
    for path in paths:
        if by == "last":
            weights, progress = load_weights(path, model, optimizer, check)
            yield weights, {"update": progress.update}
        else:
            weights, facts = load_tensors(path, partial(expect_weights, model, path=path))
            check(path, facts.get("config"))
            yield weights, {name: facts[name] for name in SCORES}


def _refuse_strange(config: Config, path: Path, begun: Any) -> None:
    if changes := changes_since(config, path, begun):
        raise InputError(f"{path}: was trained with another config ({'; '.join(changes)}); remove it")


def _refuse_unmatched(first: Path, model: Translator, folder: Path, other: Translator) -> None:
    """Refuse a folder whose weights cannot be averaged with those of the first."""
    differing = differences(resolve(model.config), resolve(other.config))
    if changes := [change for change in differing if change.startswith(SAME)]:
        more = f"; and {len(changes) - LISTED} more" if len(changes) > LISTED else ""
        raise InputError(
            f"{folder}: has no mean with {first} ({'; '.join(changes[:LISTED])}{more}); choose models of one "
            "architecture and one training.seed, which begin with the same weights"
        )
    ours, theirs = (_fingerprints(each) for each in (model, other))
    files = SRC_VOCABULARY, TRG_VOCABULARY, "what cuts the source"
    for name, one, another in zip(files, ours, theirs, strict=True):
        if one != another:
            raise InputError(
                f"{folder}: has no mean with {first} (they differ in {name}); "
                "choose models that were trained on the same text"
            )


def _fingerprints(model: Translator) -> list[Any]:
    return [None if learnt is None else learnt.fingerprint for learnt in model.vocabularies]


def _refuse_taken(out: Path, config: Config) -> None:
    """Refuse to write into a folder that holds anything but leftovers of a killed call."""
    if not out.exists():
        return
    with refuse_unwritable(out):
        names = {path.name for path in out.iterdir()} - {path.name for path in parts(out, "*")}
    refuse_odd(out / name for name in (*OWN, WEIGHTS))
    foreign = sorted(names - OWN)
    if not foreign and CONFIG in names and (out / CONFIG).read_bytes() != config.dump().encode():
        foreign = [CONFIG]
    if foreign:
        raise InputError(f"{out}: holds a {foreign[0]} already; choose another --out")


def _write(
    model: Translator, folder: Path, out: Path, facts: Row, what: str, say: Callable[[str], None]
) -> None:
    """Write a model folder; the weights come last, because they make it one."""
    _settle(model, folder, say)
    with refuse_unwritable(out):
        make_folder(out)
    for leftover in [*parts(out, "*")]:
        leftover.unlink()
    files = read_facts(folder / WEIGHTS).get("files")
    words = folder / WORDS
    if words.is_file() and isinstance(files, dict) and files.get(WORDS) == checksum(words):
        write_whole(out / WORDS, words.read_bytes())
    _write_card(model, out, facts["of"], what)
    model.save_pretrained(out, facts={"averaged": facts})


def _settle(model: Translator, folder: Path, say: Callable[[str], None]) -> None:
    """Set the threshold of the model's cuts, if it has one, as before a validation."""
    if not model.segmenter.settles:
        return
    if lost := [path for path in text_files(model.config, "train").values() if not stored(path).is_file()]:
        reason = f"its threshold has to be set on the training text, which is not at {lost[0]}"
        raise InputError(f"{folder}: {reason}; put it there")
    numbering = training_numbers(model.config, model.vocabularies)
    with TemporaryDirectory() as scratch:
        cache = Cache.of(numbering.text.src, Path(scratch))
        corpus = cache.find(numbering)
        if corpus is None:
            say("the training text is read, to set the threshold of the cuts on it")
            corpus = Corpus.make(Path(scratch) / "train", numbering)
        corpus.imitated = model.config.imitates
        try:
            settle(model, corpus)
        except IndexError as problem:
            raise InputError(
                f"{cache.folder}: damaged; remove it, and the training text is read again"
            ) from problem


def _write_card(model: Translator, out: Path, rows: Sequence[Row], what: str) -> None:
    settled = "The threshold of its cuts was set on training text again.\n" if model.segmenter.settles else ""
    card = f"""# {model.config.name}, averaged

{introduction(model.config, model.parameter_count())}

Its weights are the mean of those {what}:

{chr(10).join(f"- {listed(row)}" for row in rows)}

{settled}The mean has no scores yet: `caesura evaluate {shown_place(out)}` takes them.

Made with caesura {__version__}, torch {torch.__version__}.

{usage(out)}
"""
    write_whole(out / CARD, card.encode(errors="replace"))


def listed(row: Row) -> str:
    """An averaged model, in words."""
    if "folder" in row:
        return f"`{row['folder']}`"
    scores = f": dev BLEU {row['bleu']:.2f}, chrF2 {row['chrf']:.2f}" if "bleu" in row else ""
    return f"update {row['update']:,}{scores}"
