"""The parts of a translator as its config describes them; only registered classes, their options checked."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Container
from importlib import import_module
from typing import Any

import torch
from pydantic import ConfigDict, Field, create_model

from caesura.config import Config
from caesura.data.vocabulary import SPECIALS, UNK, Vocabulary
from caesura.decoders.base import DECODERS, Decoder
from caesura.encoders.base import ENCODERS, Encoder
from caesura.segmenters.base import SEGMENTERS, Segmenter, SymbolIds

# Where the classes of each part are registered, and which of their arguments the program supplies.
_PARTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "segmenter": (SEGMENTERS, ("vocab_size",)),
    "encoder": (ENCODERS, ("input_dim",)),
    "decoder": (DECODERS, ("vocab_size", "memory_dim", "summary_dim")),
}


def resolve(config: Config) -> Config:
    """The config with every default of its components written out; what cannot be built is refused here."""
    with torch.device("meta"):  # shapes without memory
        build_parts(config, len(SPECIALS) + 1, len(SPECIALS) + 1)
    parts = {}
    for part, (registry, given) in _PARTS.items():
        options = check_options(config, f"model.{part}", _class(config, part, registry), given)
        parts[part] = getattr(config.model, part).model_copy(update=options)
    return config.model_copy(update={"model": config.model.model_copy(update=parts)})


def build_parts(
    config: Config, src_size: int, trg_size: int, src_vocabulary: Vocabulary | None = None
) -> tuple[Segmenter, Encoder, Decoder[Any]]:
    """Segmenter, encoder and decoder for vocabularies of these sizes, with random weights.

    Where a vocabulary is not made yet, characters in options are not looked for in it.
    """
    segmenter = _component(config, "segmenter", (src_size,), src_vocabulary)
    if not segmenter.learn_halting and (tau := config.model.segmenter.tau):
        reason = "with learn_halting: false the penalty has nothing to move; set it to 0"
        raise config.error("model.segmenter.tau", f"is {tau:g}, and {reason}")
    encoder = _component(config, "encoder", (segmenter.output_dim,))
    decoder = _component(config, "decoder", (trg_size, encoder.output_dim, encoder.summary_dim))
    with config.blame("model.decoder"):
        decoder.join(segmenter)
    return segmenter, encoder, decoder


def _component(
    config: Config, part: str, supplied: tuple[int, ...], vocabulary: Vocabulary | None = None
) -> Any:
    """The configured segmenter, encoder or decoder, with its options checked against its constructor."""
    registry, given = _PARTS[part]
    target = _class(config, part, registry)
    options = check_options(config, f"model.{part}", target, given)
    for name, hint in _hints(target).items():
        if hint == SymbolIds and name in options:
            options[name] = _ids(config, f"model.{part}.{name}", options[name], vocabulary)
    with config.blame(f"model.{part}"):
        return target(**dict(zip(given, supplied, strict=True)), **options)


def check_options(
    config: Config, section: str, target: Callable[..., Any], given: Container[str]
) -> dict[str, Any]:
    """The options of a component with their defaults, checked against the signature of `target`.

    Types may be int, float, bool, str, Literal, lists and unions, and SymbolIds, which a config gives as
    characters; `given` names what the program supplies.
    """
    hints = _hints(target)
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and name not in given:
            default = ... if parameter.default is parameter.empty else parameter.default
            if hints.get(name) == SymbolIds:
                hints[name], default = str, ""
            # The prefix keeps an option called `copy` or `json` from hiding a method of the model.
            fields[f"option_{name}"] = (hints.get(name, Any), Field(default, alias=name))
    settings = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    checked = config.check(section, create_model("Options", __config__=settings, **fields), given)
    return {field.removeprefix("option_"): getattr(checked, field) for field in fields}


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)


def _ids(config: Config, key: str, characters: str, vocabulary: Vocabulary | None) -> list[int]:
    """The ids of an option's characters, each of which has to be a symbol of its own."""
    level = config.data.src.level if vocabulary is None else vocabulary.kind
    if characters and level != "char":
        raise config.error(key, f"needs data.src.level: char, not {level}")
    found = [] if vocabulary is None else vocabulary.encode(characters)
    if UNK in found:
        remedy = "leave it out, or raise data.src.voc_limit where that is what keeps it out"
        raise config.error(
            key, f"{characters[found.index(UNK)]!r} is not in the vocabulary of the training text; {remedy}"
        )
    return found


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
