"""The provenance of a training: config, calls, versions and devices, kept beside its folder and its log."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Any

from caesura import __version__
from caesura.analysis.defaults import with_defaults, without_defaults
from caesura.components import resolve
from caesura.config import Config, flat
from caesura.data.files import write_whole
from caesura.data.unpacking import PACKED
from caesura.experiments.outcome import Member
from caesura.experiments.sweep_grid import SEED, at, shown

MACHINE = ("device", "threads")  # keys of training that choose hardware
TEXTS = ("train", "dev", "test")
# Keys that caesura 0.1.0 did not have.
NEWER = {
    *("cuts", "imitation", "accumulate", "adam_betas", "weight_decay", "byte_fallback"),
    *("keep_best", "src_token_dropout", "trg_token_dropout"),
}


def note_provenance(member: Member) -> None:
    """Write the provenance of a member; calls, versions and devices are added to earlier ones."""
    config = member.load()
    command = shlex.join(["caesura", *map(without_folders, sys.argv[1:])])
    by = {"command": command, "with": versions(), "on": device_name(config)}
    before = member.read_provenance().get("by", [])
    tree = described(config)
    provenance = {
        "digest": digest(tree),
        "config": without_defaults(tree),
        "settings": _settings_of(member),
        "beam": config.testing.beam_size,
        "by": before if by in before else [*before, by],
    }
    write_whole(member.provenance, json.dumps(provenance, ensure_ascii=False))


def _settings_of(member: Member) -> list[str]:
    """The settings without the paths of text files."""
    return [s for s in member.settings if not re.match(r"data\.(train|dev|test)\b", s)]


def without_folders(word: str) -> str:
    """A word of a command without folders outside the current one, which mean nothing to other readers."""
    return re.sub(r"(?<![\w.~-])(?:~|\.\.)?/(?:[^/,]+/)*(?=[^/])", "", word)


def described(config: Config) -> dict[str, Any]:
    """A config for a reader elsewhere: text files by their names, whether they are packed or not."""
    return _named(config.model_dump(mode="json"), _unpacked)


def _unpacked(file: str) -> str:
    """The name of a text file, without the folder and without the ending of a packed one."""
    path = Path(file)
    return path.stem if path.suffix in PACKED else path.name


def _named(tree: dict[str, Any], rename: Callable[[str], str]) -> dict[str, Any]:
    """A config with other names of text files, those of cuts included."""

    def renamed(files: Any) -> Any:
        if isinstance(files, str):
            return rename(files)
        return {key: renamed(file) for key, file in files.items()} if isinstance(files, dict) else files

    data = tree["data"] | {part: renamed(tree["data"][part]) for part in TEXTS if part in tree["data"]}
    if (cuts := data.get("cuts")) and cuts.get("type") == "file":
        data["cuts"] = cuts | {part: renamed(cuts[part]) for part in TEXTS if part in cuts}
    return tree | {"data": data}


def digest(tree: dict[str, Any]) -> str:
    """A mark of everything in a config except the hardware.

    Keys with their default values are left out, so a key that a later version adds does not change the mark.
    Packed and unpacked text have the same mark.
    """
    return _digest(_named(tree, _unpacked))


def _digest(tree: dict[str, Any]) -> str:
    whole = without_defaults(tree)
    kept = {key: value for key, value in whole.get("training", {}).items() if key not in MACHINE}
    return _hashed(json.dumps(whole | {"training": kept}, sort_keys=True), size=8)


def new_values(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `other` that differ from `one`, by dotted keys, without the seed."""
    before, after = flat(one), flat(other)
    keys = [key for key in (before | after) if key != SEED]
    return {key: after.get(key) for key in keys if before.get(key) != after.get(key)}


def tree_changes(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The differences as `key: old -> new`."""
    changed = new_values(old, new).items()
    return [f"{key}: {shown(at(old, key))} -> {shown(value)}" for key, value in changed]


def changes(provenance: Mapping[str, Any], member: Member) -> list[str]:
    """The differences of a member's config from the one that results have, as `key: old -> new`.

    Earlier versions kept only settings: then the differences in those, or that the file has changed.
    """
    if old := provenance.get("config"):
        return tree_changes(_named(with_defaults(old), _unpacked), described(resolve(member.load())))
    if "settings" not in provenance:
        return ["which one is not known"]
    before, after = (
        dict(s.split("=", 1) for s in settings) for settings in (provenance["settings"], _settings_of(member))
    )
    keys, none = [key for key in before | after if before.get(key) != after.get(key)], "as in its file"
    listed = [f"{key}: {before.get(key, none)} -> {after.get(key, none)}" for key in keys]
    return listed or [f"{member.config.name} itself has changed"]


def is_mark_of(mark: str, tree: dict[str, Any]) -> bool:
    """Whether a mark belongs to a config; in earlier versions it depended on the packing of text files."""

    def marks(ending: str) -> tuple[str, str]:
        packed = _named(tree, lambda file: _unpacked(file) + ending)
        return _digest(packed), _earlier_digest(packed)

    return any(mark in marks(ending) for ending in ("", *PACKED))


def _earlier_digest(tree: dict[str, Any]) -> str:
    """The digest of caesura 0.1.0, from the keys that configs had then, in the order of that time."""
    whole = _without_newer(tree, without_defaults(tree))
    kept: dict[str, Any] = {}
    for key, value in whole["training"].items():
        if key == "checkpoint_minutes":
            kept["poison"] = []  # a key that stood before it
        if key not in MACHINE:
            kept[key] = value
    return _hashed(json.dumps(whole | {"training": kept}), size=6)


def _without_newer(tree: Mapping[str, Any], short: Mapping[str, Any]) -> dict[str, Any]:
    """A section of a config without the keys that 0.1.0 did not have, unless they are set."""
    kept = {}
    for key, value in tree.items():
        if key not in NEWER or key in short:
            inner = short.get(key)
            inner = inner if isinstance(inner, Mapping) else {}
            kept[key] = _without_newer(value, inner) if isinstance(value, Mapping) else value
    return kept


def _hashed(text: str, size: int) -> str:
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def versions() -> str:
    """The versions of the programs that results depend on."""
    import torch

    return f"caesura {__version__}, torch {torch.__version__}, Python {platform.python_version()}"


def device_name(config: Config) -> str:
    """The name of the device that a config is trained on here."""
    import torch

    if config.training.device != "cpu" and torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    try:
        cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        cpus = ""
    model = re.search(r"^model name\s*: (.+)$", cpus, re.MULTILINE)
    return model[1].strip() if model else platform.processor() or platform.machine()


def over_recipe(in_recipe: Set[str], provenances: Iterable[dict[str, Any]]) -> list[str]:
    """The settings that trainings were given by --set, each once, without the recipe's own and seeds."""
    settings = dict.fromkeys(setting for entry in provenances for setting in entry.get("settings", ()))
    return [
        s for s in settings if s not in in_recipe and not re.match(r"training\.(seed|device|threads)\b", s)
    ]


def made_by(provenances: list[dict[str, Any]]) -> list[str]:
    """A sentence per call, with versions and device, each once."""
    calls = [call for entry in provenances for call in entry.get("by", ())]
    return list(dict.fromkeys(f"Made by `{c['command']}` with {c['with']} on {c['on']}." for c in calls))
