"""The configs with which a run may start or go on in a folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from caesura.components import resolve
from caesura.config import Config, differences, load_config
from caesura.data.tensors import DamagedError
from caesura.errors import InputError
from caesura.model_folder import CONFIG, WEIGHTS
from caesura.training.card import CARD
from caesura.training.checkpoint import Progress, list_checkpoints, read_progress
from caesura.training.prepare import text_digests


def refuse_changes(config: Config, folder: Path, going_on: bool = False) -> Config:
    """Refuse a resolved config other than the one that the run in a folder began with; return that one.

    A run that is `going_on` may change settings that its past training does not depend on.
    """
    old, config = resolve(load_config(folder / CONFIG, bases=False)), with_measured(config, folder)
    if changes := differences(_with_allowed_changes(old, config, folder) if going_on else old, config):
        raise _other_config(folder, changes, "undo that or choose another --out")
    return old


def refuse_strange_checkpoint(config: Config, path: Path, begun: Any) -> None:
    """Refuse a checkpoint whose run was `begun` with another config, whatever the folder's file says."""
    if changes := changes_since(config, path, begun):
        raise _other_config(path, changes, "remove it, undo that or choose another --out")


def changes_since(config: Config, path: Path, begun: Any) -> list[str]:
    """The differences between a config and the one with which a checkpoint's run was `begun`.

    Checkpoints of earlier versions have no config and are accepted as they are.
    """
    if begun is None:
        return []
    try:
        old = resolve(Config.model_validate(begun))
    except (ValueError, InputError) as problem:
        raise DamagedError(f"{path}: damaged (its config is not valid)") from problem
    return differences(_with_allowed_changes(old, config, path.parents[1]), config)


def _other_config(path: Path, changes: list[str], remedy: str) -> InputError:
    return InputError(f"{path}: was trained with another config ({'; '.join(changes)}); {remedy}")


def _with_allowed_changes(old: Config, new: Config, folder: Path) -> Config:
    """The old config with those changes of the new one that a run can go on with."""
    free = ["accumulate", "examples", "tensorboard", "threads"]
    free += ["keep_last", "keep_best", "checkpoint_minutes"]
    for name in ("epochs", "updates"):
        before, after = getattr(old.training, name), getattr(new.training, name)
        if old.training.decay != "linear" and before is not None and (after is None or after > before):
            free.append(name)
    training = old.training.model_copy(update={name: getattr(new.training, name) for name in free})
    parts = ["test"]  # which training does not read
    if (old.data.train, old.data.dev) != (new.data.train, new.data.dev) and _same_text(new, folder):
        parts += ["train", "dev"]
    data = old.data.model_copy(update={part: getattr(new.data, part) for part in parts})
    return old.model_copy(update={"training": training, "data": data})


def _same_text(config: Config, folder: Path) -> bool:
    """Whether the text of a config, wherever it is, is the one that the run in a folder was begun with."""
    digests = text_digests(config)
    for path in list_checkpoints(folder / "checkpoints"):
        with suppress(DamagedError):  # one is enough
            if read_progress(path).text[: len(digests)] == digests:  # the hashes of vocabularies are last
                return True
    return False


def refuse_lower_bounds(config: Config, progress: Progress, folder: Path) -> None:
    """Refuse bounds that were raised before and are lower again."""
    for name, done in (("updates", progress.update), ("epochs", progress.epoch)):
        bound = getattr(config.training, name)
        if bound is not None and bound < done:
            raise InputError(f"{folder}: is at {done} {name} already; training.{name}={bound} is behind that")


def refuse_overwriting(config: Config, folder: Path) -> None:
    """Refuse a folder without checkpoints that has a model or a foreign config; a killed start is fine."""
    existing = [name for name in (WEIGHTS, CARD) if (folder / name).exists()]
    written, content = folder / CONFIG, config.dump().encode()
    if written.is_file() and (written.stat().st_size != len(content) or written.read_bytes() != content):
        existing.append(CONFIG)
    if existing:
        problem = f"has no checkpoints, but a {existing[0]} that would be overwritten"
        raise InputError(f"{folder}: {problem}; choose another --out")


def with_measured(config: Config, folder: Path) -> Config:
    """The config with the values that an earlier start in this folder has measured."""
    if config.testing.max_output_ratio is not None or not (folder / CONFIG).is_file():
        return config
    try:
        return with_ratio(config, load_config(folder / CONFIG, bases=False).testing.max_output_ratio)
    except InputError:  # a foreign file, which will be refused
        return config


def with_ratio(config: Config, ratio: float | None) -> Config:
    testing = config.testing.model_copy(update={"max_output_ratio": ratio})
    return config.model_copy(update={"testing": testing})
