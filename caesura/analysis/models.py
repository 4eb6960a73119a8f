"""Models and their search in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caesura.analysis.characters import visible
from caesura.analysis.defaults import changed_options, with_defaults
from caesura.config import Config, FileCuts
from caesura.inference import Translator
from caesura.schedules import is_schedule, shown

NAMES = {"act": "ACT-ENC"}  # of segmenters, where they differ from the type
ALWAYS = ("epsilon",)  # options that are named even if they have their defaults


def describe(model: Translator) -> str:
    """A model in a phrase: its segmenter with the options that differ from the defaults, and its depth."""
    config = model.config
    segmenter = config.model.segmenter
    depth = _depth(config)
    if segmenter.type == "lookup":
        return f"{config.data.src.level} model, {depth}"
    options = {key: v for key in ALWAYS if (v := segmenter.options.get(key)) is not None}
    options |= changed_options("segmenter", segmenter.model_dump(mode="json"))
    parts = {key: value for key, value in options.items() if isinstance(value, dict) and "type" in value}
    if (cuts := config.data.cuts) and parts.get("cutter", {}).get("type") == "given":
        files = {"type", *(() if isinstance(cuts, FileCuts) else type(cuts).model_fields)}
        parts["cutter"] = cuts.model_dump(mode="json", include=files, exclude_defaults=True)
    name = " ▸ ".join(_part(key, value, options) for key, value in parts.items())
    name = name or NAMES.get(segmenter.type, segmenter.type) + _rate(options.get("rate"))
    phrases = [f"{name} on {config.data.src.level} symbols"]
    if segmenter.tau or not parts:
        phrases.append(f"tau {shown(segmenter.penalty_weight)}")
    if (weight := segmenter.imitation_weight) is not None:
        phrases.append(f"imitation {shown(weight)}")
    phrases += _in_words({key: value for key, value in options.items() if key not in parts})
    return ", ".join([*phrases, depth])


def _depth(config: Config) -> str:
    """How many layers the encoder has, and a Transformer as a decoder."""
    parts = with_defaults(config.model_dump(mode="json"))["model"]
    phrases = []
    for name in ("encoder", "decoder"):
        transformer = parts[name]["type"] == "transformer"
        layers = parts[name].get("num_layers", 1)
        if transformer or name == "encoder":
            kind = "Transformer " if transformer else ""
            phrases.append(f"{layers} {kind}{name} layer{'s' if layers != 1 else ''}")
    return ", ".join(phrases)


def _part(key: str, value: Mapping[str, Any], beside: Mapping[str, Any]) -> str:
    """A part within a segmenter, such as `fixed (k 4)`; the cutter with the rate that it keeps."""
    listed = ", ".join(_in_words({name: option for name, option in value.items() if name != "type"}))
    rate = beside.get("rate") if key == "cutter" else None
    return str(value["type"]) + (f" ({listed})" if listed else "") + _rate(rate)


def _in_words(options: Mapping[str, Any]) -> list[str]:
    """Options as words, without sizes and the rate."""
    left_out = {key for key in options if key in ("size", "rate") or key.endswith(("_dim", "_size"))}
    return [f"{key} {_shown(value)}" for key, value in options.items() if key not in left_out]


def _rate(rate: Mapping[str, Any] | None) -> str:
    """The rate of a cutter, such as ` at 4 by pi`."""
    if not rate:
        return ""
    return f" at {shown(rate['target'])}" + (f" by {rate['by']}" if rate.get("by") else "")


def _shown(value: Any) -> str:
    if is_schedule(value):
        return shown(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else visible(str(value))


def cut_after(model: Translator) -> str:
    """The characters that end a segment whatever their scores are."""
    return str(model.config.model.segmenter.options.get("cut_after", ""))
