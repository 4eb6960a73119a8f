"""What commands read from their options: times, lists of numbers."""

from __future__ import annotations

import re

from caesura.errors import InputError


def parse_duration(text: str, option: str = "--time-limit") -> float:
    """90s, 9m, 1.5h or plain seconds, as seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|h)?", text.strip())
    if not match:
        raise InputError(f"{option} {text}: should look like 90s, 9m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600, None: 1}[match[2]]


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds such as 1,2,3; one that is given twice counts once."""
    if not re.fullmatch(r"\d{1,9}(,\d{1,9})*", text):
        raise InputError(f"--seeds {text}: whole numbers separated by commas are wanted, such as 1,2,3")
    return tuple(dict.fromkeys(int(seed) for seed in text.split(",")))
