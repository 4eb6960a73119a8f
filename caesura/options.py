"""What commands read from their options: times, lists of numbers."""

from __future__ import annotations

import re

from caesura.errors import InputError


def parse_duration(text: str, option: str = "--time-limit") -> float:
    """90s, 9m, 1m30s, 1.5h or plain seconds, as seconds."""
    number = r"(\d+(?:\.\d+)?)"
    match = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s?)?", text.replace(" ", ""))
    if not match or not any(match.groups()):
        raise InputError(f"{option} {text}: should look like 90s, 9m, 1m30s or 2h")
    return sum(float(part or 0) * size for part, size in zip(match.groups(), (3600, 60, 1), strict=True))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds such as 1,2,3; one that is given twice counts once."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise InputError(f"--seeds {text}: whole numbers separated by commas are wanted, such as 1,2,3")
    return tuple(dict.fromkeys(int(seed) for seed in text.split(",")))
