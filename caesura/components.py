"""The parts of a translator as its config describes them; only registered classes, their options checked."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, create_model

from caesura.config import AlignmentCuts, Config, FileCuts
from caesura.config.yamlfile import show
from caesura.data.vocabulary import SPECIALS, UNK, Vocabulary
from caesura.decoders.base import DECODERS, Decoder
from caesura.encoders.base import ENCODERS, Encoder
from caesura.schedules import extremes, shown
from caesura.segmenters.base import SEGMENTERS, BaseSegmenter, SymbolIds
from caesura.segmenters.parts import CUTTERS, POOLINGS, READERS, Cutter, Pooling, Reader
from caesura.segmenters.rate import RateControl

# Where the classes of each part are registered.
_PARTS: dict[str, dict[str, Any]] = {"segmenter": SEGMENTERS, "encoder": ENCODERS, "decoder": DECODERS}
# The same for parts of a part, by the type of the constructor's argument that takes one.
_WITHIN: dict[Any, tuple[str, dict[str, Any]]] = {
    Reader: ("reader", READERS),
    Cutter: ("cutter", CUTTERS),
    Pooling: ("pooling", POOLINGS),
}
# Names in logs and tables that a segmenter's figures cannot have.
TAKEN = {
    *("loss", "cross_entropy", "symbols", "sentences", "source_symbols", "segments", "segment_length"),
    *("longest_segment", "bleu", "chrf", "exact", "update", "epoch", "seconds", "learning_rate", "tau"),
    *("decoder_tau", "decoder_penalty", "output_symbols", "output_segments", "output_segment_length"),
    *("target_length", "rate_weight", "threshold", "temperature", "slope", "imitation"),
    *("output_live", "longest_output_segment", "boundary_f1", "verdict", "clipped", "updates", "kind"),
}
# The arguments of constructors that the program supplies; all others are options.
_SUPPLIED = ("vocab_size", "input_dim", "memory_dim", "summary_dim")


def resolve(config: Config) -> Config:
    """The config with every default of its components written out; refuses parts that cannot be built."""
    with torch.device("meta"):  # shapes without memory
        build_parts(config, len(SPECIALS) + 1, len(SPECIALS) + 1)
    parts = {}
    for part, registry in _PARTS.items():
        component = getattr(config.model, part)
        target = _class(config, f"model.{part}", part, component.type, registry)
        options = check_options(config, f"model.{part}", target, component.options, component.type)
        parts[part] = component.model_copy(update=options)
    return config.model_copy(update={"model": config.model.model_copy(update=parts)})


def build_parts(
    config: Config, src_size: int, trg_size: int, src_vocabulary: Vocabulary | None = None
) -> tuple[BaseSegmenter, Encoder, Decoder[Any]]:
    """Segmenter, encoder and decoder for vocabularies of these sizes, with random weights.

    Without a vocabulary, characters in options are not checked against it.
    """
    segmenter = _component(config, "segmenter", {"vocab_size": src_size}, src_vocabulary)
    with config.blame("model.segmenter"):
        segmenter.check_tau(config.model.segmenter.penalty_weight)
        segmenter.check_names(TAKEN)
        _check_rate(config, segmenter.control)
    if config.data.cuts is not None and not segmenter.takes_cuts:
        raise config.error("data.cuts", "this segmenter cuts after every symbol and takes none; remove them")
    _check_imitation(config, segmenter)
    if segmenter.needs_given() and config.data.cuts is None:
        raise config.error("model.segmenter.cutter", "needs cuts; set data.cuts, such as {type: whitespace}")
    if segmenter.cuttings > 1 and config.training.risk_candidates:
        reason = f"cannot be used with the {segmenter.cuttings} cuttings per sentence of {segmenter.kind}"
        raise config.error("training.risk_candidates", f"{reason}; remove one of the two")
    encoder = _component(config, "encoder", {"input_dim": segmenter.output_dim})
    # Without a summary, a decoder begins with the mean of the states.
    first = encoder.output_dim if encoder.summary_dim is None else encoder.summary_dim
    sizes = {"vocab_size": trg_size, "memory_dim": encoder.output_dim, "summary_dim": first}
    decoder = _component(config, "decoder", sizes)
    with config.blame("model.decoder"):
        decoder.join(segmenter)
    sides = config.data.src.level, config.data.trg.level
    if decoder.one_vocabulary and not config.data.joint and sides != ("byte", "byte"):
        remedy = "set data.joint: true (levels bpe and wordpiece), or level: byte on both sides"
        raise config.error("model.decoder.share", f"needs one vocabulary for both sides; {remedy}")
    return segmenter, encoder, decoder


def _check_imitation(config: Config, segmenter: BaseSegmenter) -> None:
    """Refuse cuts that should be learned where there are none, or nothing that could learn them."""
    weight, key = config.model.segmenter.imitation_weight, "model.segmenter.imitation"
    if weight is None:
        cuts, needed = config.data.cuts, f"set {key}, such as 1.0, so that they are learned"
        if isinstance(cuts, AlignmentCuts):
            raise config.error(
                "data.cuts", f"type alignment needs translations, which new text lacks; {needed}"
            )
        if isinstance(cuts, FileCuts) and cuts.dev is None:
            raise config.error("data.cuts", f"dev is missing: offsets for the dev set; or {needed}")
        return
    if extremes(weight)[0] < 0:
        raise config.error(key, f"should be at least 0, not {shown(weight)}")
    if not segmenter.imitates:
        raise config.error(key, f"needs a segmenter with logits, which {segmenter.kind} does not have")
    if config.data.cuts is None:
        raise config.error(key, "needs cuts; set data.cuts, such as {type: entropy, target: 4.0}")


def _check_rate(config: Config, control: RateControl | None) -> None:
    """Refuse a rate of other symbols than characters, and segments that are longer than every sentence."""
    if control is None:
        return
    level, longest, target = config.data.src.level, config.data.max_chars, extremes(control.rate.target)[1]
    if level != "char":
        raise ValueError(f"rate counts characters; it needs data.src.level: char, not {level}")
    if longest is not None and target > longest:
        raise ValueError(
            f"rate.target is {target:g}, but sentences have at most {longest} characters (data.max_chars)"
        )


def _component(
    config: Config, part: str, supplied: Mapping[str, int], vocabulary: Vocabulary | None = None
) -> Any:
    """The configured segmenter, encoder or decoder, with its options checked against its constructor."""
    component, section = getattr(config.model, part), f"model.{part}"
    target = _class(config, section, part, component.type, _PARTS[part])
    options = check_options(config, section, target, component.options, component.type)
    return _build(config, section, target, options, supplied, vocabulary)


def _build(
    config: Config,
    section: str,
    target: Callable[..., Any],
    options: dict[str, Any],
    supplied: Mapping[str, int],
    vocabulary: Vocabulary | None,
) -> Any:
    """`target` made with checked options; the reader's output size is the `input_dim` of the others."""
    arguments, supplied = dict(options), dict(supplied)
    for name, hint in _hints(target).items():
        value: Any = options.get(name)
        if hint == SymbolIds and name in options:
            arguments[name] = _ids(config, f"{section}.{name}", options[name], vocabulary)
        elif hint in _WITHIN:
            kind, registry = _WITHIN[hint]
            inner = {key: v for key, v in value.items() if key != "type"}
            made = _class(config, f"{section}.{name}", kind, value["type"], registry)
            arguments[name] = _build(config, f"{section}.{name}", made, inner, supplied, vocabulary)
            supplied.setdefault("input_dim", getattr(arguments[name], "output_dim", 0))
        elif isinstance(value, dict) and (made := _record(hint)):
            arguments[name] = _build(config, f"{section}.{name}", made, value, {}, None)
    parameters = inspect.signature(target).parameters
    with config.blame(section):
        return target(**{name: size for name, size in supplied.items() if name in parameters}, **arguments)


def check_options(
    config: Config, section: str, target: Callable[..., Any], values: Mapping[str, Any], kind: str = ""
) -> dict[str, Any]:
    """The options of a component with their defaults, checked against the signature of `target`.

    Types may be int, float, bool, str, Literal, lists and unions; SymbolIds, which a config gives as
    characters; a part, given as {type: NAME, ...} or just its name; and a dataclass. Options of parts and of
    dataclasses come out as mappings, all defaults written out.
    """
    hints, model = _hints(target), _options(target)
    _check_sections(config, section, hints, values)
    checked = config.check(section, values, model, _SUPPLIED, kind)
    options = {field.removeprefix("option_"): getattr(checked, field) for field in model.model_fields}
    for name, hint in hints.items():
        key, value = f"{section}.{name}", options.get(name)
        if hint in _WITHIN:
            options[name] = _part_options(config, key, hint, value)
        elif isinstance(value, dict) and (record := _record(hint)):
            options[name] = check_options(config, key, record, value)
    return options


@cache
def _options(target: Callable[..., Any]) -> type[BaseModel]:
    """The model that checks the options of `target`, by its signature."""
    hints, fields = _hints(target), dict[str, Any]()
    for name, parameter in inspect.signature(target).parameters.items():
        named = parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        if named and name not in _SUPPLIED:
            default = ... if parameter.default is parameter.empty else parameter.default
            hint = hints.get(name, Any)
            if hint == SymbolIds:
                hint, default = str, ""
            elif hint in _WITHIN:
                hint = str | dict[str, Any]
            elif _record(hint):
                others = tuple(t for t in typing.get_args(hint) if not is_dataclass(t))
                hint = typing.Union[(dict[str, Any], *others)]
            # The prefix keeps an option called `copy` or `json` from hiding a method of the model.
            fields[f"option_{name}"] = (hint, Field(default, alias=name))
    settings = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    return create_model("Options", __config__=settings, **fields)


def _check_sections(
    config: Config, section: str, hints: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
    """Refuse a value that is neither the name nor the section of a part, with a sentence of our own."""
    for name, hint in hints.items():
        value = values.get(name)
        if hint in _WITHIN and name in values and not isinstance(value, str | dict):
            example = sorted(_WITHIN[hint][1])[0]
            form = f"should be a name such as {example}, or a section such as {{type: {example}}}"
            raise config.error(f"{section}.{name}", f"{show(value)} {form}")
        if _record(hint) and float not in typing.get_args(hint) and not isinstance(value, dict | None):
            first = next(iter(inspect.signature(_record(hint)).parameters))
            raise config.error(
                f"{section}.{name}", f"{show(value)} should be a section such as {{{first}: 4.0}}"
            )


def _part_options(config: Config, section: str, hint: Any, value: Any) -> dict[str, Any]:
    """The type and options of a part within a part."""
    kind, registry = _WITHIN[hint]
    given = {"type": value} if isinstance(value, str) else value
    name = given.get("type")
    if not isinstance(name, str):
        raise config.error(section, f"type is missing; choose one of {', '.join(sorted(registry))}")
    target = _class(config, section, kind, name, registry)
    options = {key: v for key, v in given.items() if key != "type"}
    return {"type": name} | check_options(config, section, target, options, name)


def _record(hint: Any) -> Any:
    """The dataclass that a hint names, alone or beside None."""
    choices = [hint, *typing.get_args(hint)]
    return next((choice for choice in choices if inspect.isclass(choice) and is_dataclass(choice)), None)


@cache
def _hints(target: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of a constructor's or a function's arguments."""
    return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target, include_extras=True)


def _ids(config: Config, key: str, characters: str, vocabulary: Vocabulary | None) -> list[int]:
    """The ids of an option's characters; each of them has to be a symbol."""
    level = config.data.src.level if vocabulary is None else vocabulary.kind
    if characters and level != "char":
        raise config.error(key, f"needs data.src.level: char, not {level}")
    ids = [] if vocabulary is None else [*map(vocabulary.id_of, characters)]
    if UNK in ids:
        remedy = "leave it out, or raise data.src.voc_limit where that is what keeps it out"
        raise config.error(
            key, f"{characters[ids.index(UNK)]!r} is not in the vocabulary of the training text; {remedy}"
        )
    return ids


def _class(config: Config, section: str, part: str, name: str, registry: Mapping[str, Any]) -> Any:
    """The class that a part's `type` names; only registered ones, so that no config can run code."""
    if name not in registry:
        names = ", ".join(sorted(registry))
        others = [kind for kind, parts in _WITHIN.values() if name in parts and kind != part]
        hint = f"; {name} is a {others[0]}: {others[0]}: {name}" if others else ""
        raise config.error(f"{section}.type", f"unknown {part} '{name}'; there are {names}{hint}")
    target = registry[name]
    if isinstance(target, str):
        module, _, attribute = target.partition(":")
        target = getattr(import_module(module), attribute)
    return target
