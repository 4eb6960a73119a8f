"""A model folder: the names of its files, writing them, and checking that they are unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from caesura import __version__
from caesura.config import Config, EntropyCuts, SymbolCuts, load_config
from caesura.config.cookbook import own_models
from caesura.data.entropy import EntropyModelCuts, load_ngrams
from caesura.data.entropy_gru import GruCuts, load_gru
from caesura.data.files import checksum, refuse_links, write_whole
from caesura.data.held import make_folder
from caesura.data.tensors import DamagedError, Header, Kinds, load_tensors, read_header, save_tensors
from caesura.data.vocabulary import MAX_BYTES, Vocabulary
from caesura.data.vocabulary_file import load_vocabulary
from caesura.data.words import WORDS
from caesura.errors import InputError
from caesura.visible import quoted, shortened

CONFIG, WEIGHTS, SRC_VOCABULARY, TRG_VOCABULARY, CUTS_VOCABULARY, CUTS_NGRAMS, CUTS_GRU = (
    "config.yaml",
    "model.safetensors",
    "src.vocab.json",
    "trg.vocab.json",
    "cuts.vocab.json",  # only where data.cuts are the ends of learnt symbols
    "cuts.ngrams.npz",  # only where data.cuts are by the entropy of n-grams
    "cuts.gru.safetensors",  # only where they are by that of a GRU
)

_DESCRIPTION = (CONFIG, SRC_VOCABULARY, TRG_VOCABULARY)
LEARNT_CUTS = (CUTS_VOCABULARY, CUTS_NGRAMS, CUTS_GRU)
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
Model = TypeVar("Model", bound=nn.Module)

# Bytes of weights that are read although they do not fit the rest: their checksum says which file is damaged.
_SMALL = 1 << 26

# Of a model folder. A new option needs no new number: options that a config lacks have their defaults, and an
# older version names the key that it does not know.
# 1: the weights' metadata has the checksums of the other files; folders before have none.
# 2: data.max_chars and, of training, warmup, label_smoothing, max_skipped, checkpoint_minutes, and poison,
#    which 0.2 has retired.
# 3: training.decay, and training.patience may be null.
# 4: model.segmenter.learn_halting.
# 5: model.segmenter.cut_after.
# 6: model.segmenter may be made of a reader, a cutter and a pooling; data.cuts.
# 7: model.segmenter.rate may be kept in five ways, whose state is in the weights; numbers with schedules.
FORMAT = 7


def _beneath(folder: Path) -> str:
    """A hint where the models are, if subfolders have some, as in a sweep or a demo."""
    models = [path.parent for depth in ("*", "*/*") for path in sorted(folder.glob(f"{depth}/{WEIGHTS}"))]
    more = f" and {len(models) - 1} more" if models[1:] else ""
    return f"; the models are beneath it: {models[0]}{more}" if models else ""


class Vocabularies(NamedTuple):
    """The vocabularies of a model folder."""

    src: Vocabulary
    trg: Vocabulary
    cuts: Vocabulary | EntropyModelCuts | None = None  # needed by `data.cuts` to cut any source


def read_folder(folder: Path, settings: Sequence[str], build: Callable[..., Model]) -> Model:
    """The model that `build` makes of config and vocabularies, with its weights; else it is refused.

    `settings` are put in place of the config's own. Memory is taken for weights that fit the config alone.
    """
    for setting in settings:
        if not setting.startswith("testing."):
            raise InputError(f"--set {setting}: a trained model has only testing settings to change")
    if folder.is_file():
        raise InputError(f"{folder}: is a file; a model folder is wanted")
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such model folder; `caesura train CONFIG --out {folder}` makes one; "
            f"Caesura brings {' and '.join(own_models())}"
        )
    for name in (*_DESCRIPTION, WEIGHTS):
        if not (folder / name).is_file():
            young = name == WEIGHTS and (folder / "checkpoints").is_dir()
            hint = "; training has not reached its first validation yet" if young else _beneath(folder)
            raise InputError(f"{folder}: not a complete model folder, {name} is missing{hint}")
    files = [*_DESCRIPTION, *(name for name in LEARNT_CUTS if os.path.lexists(folder / name))]
    refuse_links([folder / name for name in (*files, WEIGHTS)], folder)
    if strange := [name for name in files if not (folder / name).is_file()]:  # a pipe would never end
        raise InputError(f"{folder / strange[0]}: not a plain file")
    try:
        return _checked_model(folder, files, settings, build)
    except DamagedError as problem:
        raise InputError(f"{problem}; copy the folder anew, or train again") from problem


def load_vocabularies(folder: Path, config: Config) -> Vocabularies:
    """The vocabularies of a folder, as many as its config wants."""
    src, trg = load_vocabulary(folder / SRC_VOCABULARY), load_vocabulary(folder / TRG_VOCABULARY)
    settings = config.data.cuts
    if not isinstance(settings, SymbolCuts | EntropyCuts):
        return Vocabularies(src, trg)
    by_gru = isinstance(settings, EntropyCuts) and settings.model == "gru"
    by_entropy = CUTS_GRU if by_gru else CUTS_NGRAMS
    path = folder / (by_entropy if isinstance(settings, EntropyCuts) else CUTS_VOCABULARY)
    if not path.is_file():
        raise InputError(f"{folder}: not a complete model folder, {path.name} is missing")
    if isinstance(settings, EntropyCuts):
        return Vocabularies(src, trg, (load_gru if by_gru else load_ngrams)(path, settings))
    cuts = load_vocabulary(path)
    if cuts.kind != settings.type:
        raise InputError(f"{path}: of kind {cuts.kind}; data.cuts of this model are of type {settings.type}")
    return Vocabularies(src, trg, cuts)


def save_vocabularies(folder: Path, vocabularies: Vocabularies) -> None:
    """Write the vocabularies for `load_vocabularies`."""
    cuts = CUTS_VOCABULARY
    if isinstance(vocabularies.cuts, EntropyModelCuts):
        cuts = CUTS_GRU if isinstance(vocabularies.cuts, GruCuts) else CUTS_NGRAMS
    names = SRC_VOCABULARY, TRG_VOCABULARY, cuts
    for vocabulary, name in zip(vocabularies, names, strict=True):
        if vocabulary is not None:
            vocabulary.save(folder / name)


def write_folder(
    folder: Path,
    config: Config,
    vocabularies: Vocabularies,
    weights: Mapping[str, Tensor],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write a folder for `read_folder`; `facts` go into the metadata of the weights.

    The weights come last, with the checksums of the rest: they turn a folder into another model.
    """
    make_folder(folder)
    save_vocabularies(folder, vocabularies)
    write_whole(folder / CONFIG, config.dump())
    names = [name for name in (*_DESCRIPTION, *LEARNT_CUTS, WORDS) if (folder / name).is_file()]
    files = {name: checksum(folder / name) for name in names}
    manifest = {"format": FORMAT, "version": __version__, "files": files}
    save_tensors(folder / WEIGHTS, weights, {**(facts or {}), **manifest})


def expect_weights(model: nn.Module, kinds: Kinds, path: Path) -> None:
    """Refuse weights whose names, shapes or types differ from the model's."""
    expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    theirs = {name: kind.shape for name, kind in kinds.items()}
    if expected != theirs:
        name = sorted(dict(expected.items() ^ theirs.items()))[0]
        shape, present = expected.get(name, "nothing"), theirs.get(name, "nothing")
        raise DamagedError(
            f"{path}: does not fit {CONFIG}: {quoted(name)} should be {shape}, is {shortened(str(present))}"
        )
    types = {kinds[name].dtype for name, _ in model.named_parameters()}
    if len(types) > 1 or not types <= {*_FLOATS}:
        raise DamagedError(f"{path}: weights of type {', '.join(sorted(map(str, types)))}; should be float32")
    if wrong := [
        name for name, _ in model.named_buffers() if name in kinds and kinds[name].dtype not in _FLOATS
    ]:
        raise DamagedError(f"{path}: {wrong[0]} should be a finite number")


def _checked_model(
    folder: Path, names: Sequence[str], settings: Sequence[str], build: Callable[..., Model]
) -> Model:
    """The model of a folder, if every file of these names is unchanged since the weights were saved."""
    path, header = folder / WEIGHTS, read_header(folder / WEIGHTS)
    _check_format(path, header)
    for name in names:
        if (folder / name).stat().st_size > MAX_BYTES:
            raise InputError(
                f"{folder / name}: larger than {MAX_BYTES >> 20} MiB, too large for a model folder"
            )
    try:
        _check_description(folder, names, header)
        config = load_config(folder / CONFIG, settings, bases=False)
        with torch.device("meta"):  # shapes without memory
            model = build(config, *load_vocabularies(folder, config))
        expect_weights(model, header.tensors, path)
    except InputError:
        if header.size <= _SMALL:
            load_tensors(path)
        raise
    weights, _ = load_tensors(path, lambda kinds: expect_weights(model, kinds, path))
    kept = [name for name, _ in model.named_buffers() if name in weights]
    if wrong := [name for name in kept if not weights[name].isfinite().all()]:
        raise InputError(f"{path}: {wrong[0]} should be a finite number")
    model.load_state_dict(weights, assign=True)
    small = next(model.parameters()).dtype in (torch.bfloat16, torch.float16)  # on disk, not at work
    return _widened(model) if small else model


def _widened(model: Model) -> Model:
    """The model with parameters in float32; buffers, such as counts of a rate, keep their precision."""
    for parameter in model.parameters():
        parameter.data = parameter.data.float()
    return model


def _check_format(path: Path, header: Header) -> None:
    number = header.facts.get("format", 0)
    if not isinstance(number, int) or number > FORMAT:
        raise InputError(
            f"{path}: a model of format {_brief(number)}, by caesura {_brief(header.facts.get('version'))}; "
            f"this is {__version__}, which reads up to {FORMAT}: use that version or a later one"
        )


def _check_description(folder: Path, names: Sequence[str], header: Header) -> None:
    """Refuse files that have changed since the weights were saved."""
    files = header.facts.get("files")
    for name in names if header.facts.get("format", 0) else ():
        if not isinstance(files, dict) or files.get(name) != checksum(folder / name):
            hint = "; to change how it translates, use --set testing.KEY=VALUE" if name == CONFIG else ""
            raise InputError(
                f"{folder / name}: damaged or changed: not the file that {WEIGHTS} was saved with{hint}"
            )


def _brief(value: object) -> str:
    """A value from a file, made safe to print."""
    return shortened(str(value), 23) if isinstance(value, str | int) else "?"
