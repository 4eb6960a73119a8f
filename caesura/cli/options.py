"""Arguments and options that commands share, and how they are read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from caesura.errors import InputError
from caesura.streams import refuse_closed_output
from caesura.visible import one_line

if TYPE_CHECKING:
    from caesura.inference import Translator


def find_text(file: str | None) -> str | None:
    """The text file that an option names; prints a notice if it is a packed one, such as NAME.xz."""
    if file is None or file == "-":
        return file
    from caesura.data.files import packed_instead, stored

    if instead := packed_instead(file):
        print(one_line(f"caesura: {instead}"), file=sys.stderr)
    return str(stored(file)) if instead else file


def _check_gold(file: str | None) -> str | None:
    file = find_text(file)
    if file is not None and file != "-" and not os.path.exists(file):
        raise InputError(f"--gold {file}: no such file")
    return file


ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="a model folder")]
Errors = Annotated[
    Literal["strict", "replace"], typer.Option("--errors", help="bytes that are not UTF-8: stop, or �")
]
Beam = Annotated[
    int | None, typer.Option("--beam", min=1, max=1000, help="beam size; 1 is greedy; else the config's")
]
Gold = Annotated[
    str | None,
    typer.Option(
        "--gold",
        metavar="FILE",
        help="a file of gold segments: of words, morphemes or compounds (docs/analysis.md)",
        callback=_check_gold,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="JSON instead of text")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, or auto")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=4096, help="CPU threads; else as many as cores are free")
]
Testing = Annotated[
    list[str] | None, typer.Option("--set", metavar="testing.A=B", help="for this call; may be repeated")
]


def parse_duration(text: str | None, option: str = "--time-limit") -> float | None:
    """90s, 9m, 1m30s, 1.5h or plain seconds, as seconds; None stays None."""
    if text is None:
        return None
    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s?)?", text.replace(" ", ""))
    if not match or not any(match.groups()):
        raise InputError(f"{option} {text}: should look like 90s, 9m, 1m30s or 2h")
    seconds = sum(float(part or 0) * size for part, size in zip(match.groups(), (3600, 60, 1), strict=True))
    if not seconds:
        raise InputError(f"{option} {text}: should be more than 0, such as 90s, 9m, 1m30s or 2h")
    return seconds


def all_settings(settings: list[str] | None, short: Mapping[str, object]) -> tuple[str, ...]:
    """The settings of --set, and those that have an option of their own."""
    return (*(settings or ()), *(f"{key}={value}" for key, value in short.items() if value is not None))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds such as 1,2,3; one that is given twice counts once."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise InputError(f"--seeds {text}: whole numbers separated by commas are wanted, such as 1,2,3")
    return tuple(dict.fromkeys(int(seed) for seed in text.split(",")))


def load_model(folder: Path, device: str, testing: Testing, threads: Threads = None) -> Translator:
    """The model of a folder on the device that was asked for, with the settings of this call."""
    refuse_closed_output()
    import torch

    from caesura.inference import Translator
    from caesura.kernels.cores import use_threads
    from caesura.training.lock import is_held

    if device not in ("auto", "cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device {device}: not here; auto or cpu would work")
    place = "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu"
    if (crowded := use_threads(threads)) and place == "cpu":
        print(f"caesura: {crowded}", file=sys.stderr)
    if is_held(folder):
        print(f"caesura: {folder} is in training; these are its best weights so far", file=sys.stderr)
    return Translator.from_pretrained(folder, place, testing or ())
