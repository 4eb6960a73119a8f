"""Pydantic's errors in our words: what is wrong with a key, and what would be right."""

import difflib
import inspect
import json
import re
import typing
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from caesura.config.yamlfile import Key, Place, Problem, place_of, show

# Names of JoeyNMT, fairseq and Hugging Face, with underscores, for keys of a config.
ALIASES = {
    alias: key
    for key, names in {
        "training.learning_rate": "lr",
        "training.adam_betas": "adam_beta1 adam_beta2 betas",
        "training.warmup": "learning_rate_warmup warmup_steps warmup_updates",
        "training.decay": "lr_scheduler lr_scheduler_type scheduling",
        "training.decrease_factor": "lr_shrink",
        "training.clip_grad_norm": "clip_norm grad_clip gradient_clipping max_grad_norm",
        "training.epochs": "max_epoch max_epochs num_epochs num_train_epochs",
        "training.updates": "max_steps max_update max_updates num_steps",
        "training.batch_size": "max_sentences max_tokens per_device_train_batch_size train_batch_size",
        "training.validation_freq": "eval_steps valid_freq validate_interval validate_interval_updates",
        "training.patience": "early_stopping_patience",
        "training.src_token_dropout": "token_dropout word_dropout",
        "training.label_smoothing": "label_smoothing_factor",
        "training.keep_best": "keep_best_checkpoints keep_best_ckpts",
        "training.keep_last": "keep_last_ckpts keep_last_epochs save_total_limit",
        "training.checkpoint_minutes": "save_interval save_interval_updates save_steps",
        "training.seed": "random_seed",
        "training.device": "cpu no_cuda use_cpu use_cuda",
        "training.precision": "bf16 fp16",
        "training.threads": "num_workers",
        "training.examples": "print_valid_sents",
        "testing.beam_size": "beam generation_num_beams num_beams",
        "testing.alpha": "beam_alpha length_penalty lenpen",
        "testing.max_output_extra": "generation_max_length max_len_b max_new_tokens max_output_length",
        "testing.max_output_ratio": "max_len_a",
        "testing.bleu_tokenize": "sacrebleu sacrebleu_cfg sacrebleu_tokenizer",
        "data.train": "train_file trainpref",
        "data.dev": "eval_file val valid validation validation_file validpref",
        "data.test": "test_file testpref",
        "data.src.lang": "source_lang src_lang",
        "data.trg.lang": "target_lang tgt_lang trg_lang",
        "data.src": "source",
        "data.trg": "tgt",
        "data.src.max_length": "max_sent_length max_source_length max_source_positions",
        "data.trg.max_length": "max_target_length max_target_positions",
        "data.src.voc_limit": "nwordssrc src_voc_limit vocab_size voc_size",
        "data.trg.voc_limit": "nwordstgt trg_voc_limit",
        "data.joint": "joined_dictionary",
    }.items()
    for alias in names.split()
}


def problems(
    invalid: ValidationError,
    model: type[BaseModel],
    places: Mapping[Key, Place],
    section: Key = (),
    given: Container[str] = (),
    whole: type[BaseModel] | None = None,
) -> list[Problem]:
    """The problems with the keys of `section`, one per key; `given` are keys that the program sets.

    A missing key is not named beside its misspelling; one in a wrong place is looked for in all of `whole`.
    """
    messages: dict[Key, list[str]] = {}
    absent, guessed = set(), set()
    for error in invalid.errors(include_url=False):
        path, key = _path_and_key(error)
        if section:
            path = key = key[:1]
        if error["type"] == "rule" and error["ctx"]["key"]:
            key = (*key, _broken_at(error["ctx"], section + key, places))
        if error["type"] == "extra_forbidden":
            text, guess = _unknown(key, section, path[:-1], model, whole)
            guessed.add((*key[:-1], guess))
            if key[-1] in given:
                text = "the program sets this itself; remove it"
        elif error["type"] == "missing":
            absent.add(key)
            about = _fields(model, path[:-1])[key[-1]].description
            text = f"missing: {about}" if about else "missing"
        else:
            text = _phrase(error, section + key, place_of(places, section + key))
        messages.setdefault(key, []).append(text)
    for key in absent & guessed:
        del messages[key]
    return [
        Problem(place_of(places, section + k), section + k, "; ".join(texts)) for k, texts in messages.items()
    ]


def _path_and_key(error: ErrorDetails) -> tuple[Key, Key]:
    """The place of an error: as pydantic names it, and as the user's key."""
    # <: a union's tag; [key]: the name of an entry, not its value
    path = tuple(str(part) for part in error["loc"] if str(part) != "[key]")
    key = tuple(part for part in path[:-1] if not part.startswith("<"))
    if error["type"] == "extra_forbidden" or not path[-1:] or not path[-1].startswith("<"):
        key += path[-1:]  # an unknown key is named as it is
    return path, key


def _unknown(
    key: Key, section: Key, home: Key, model: type[BaseModel], whole: type[BaseModel] | None
) -> tuple[str, str | None]:
    """The message for an unknown key in the section `home` of `model`, and the key that it may mean."""
    names = dict.fromkeys(_keys(whole)) if whole else {}
    elsewhere = [".".join(name) for name in names if name[-1] == key[-1]]
    options = _fields(model, home)
    fields = options | (_fields(whole, section) if whole and section else {})
    alias = ALIASES.get(key[-1].lower().replace("-", "_"), "") if whole and not elsewhere else ""
    here = alias.split(".")[-1]
    if alias and here not in fields:
        elsewhere = [alias]
    guess = None if elsewhere else here or nearest(key[-1], fields)
    if section + key in names:
        return "not a key of this type", guess
    meant = f"'{guess}'" if guess else " or ".join(elsewhere)
    if meant:
        return f"unknown key; did you mean {meant}?", guess
    return "unknown key" + (f"; it takes {', '.join(options)}" if section and options else ""), guess


def _broken_at(context: Mapping[str, Any], section: Key, places: Mapping[Key, Place]) -> str:
    """The key of a rule between several: the one that the command line has set, by default the first."""
    names = (context["key"], *context["others"])
    set_here = (n for n in names if (place := places.get((*section, n))) and place.file and not place.line)
    return next(set_here, context["key"])


_LIMITS = {
    "greater_than_equal": "too small; at least {ge:.15g}",
    "greater_than": "too small; more than {gt:.15g}",
    "less_than_equal": "too large; at most {le:.15g}",
    "less_than": "too large; less than {lt:.15g}",
}
_WANTED = {
    "int": "a whole number",
    "float": "a number",
    "string": "text",
    "bool": "true or false",
    "path": "a file name",
    "list": "a list",
    "model": "a section of `key: value` lines",
    "union": "a FILE.tsv or {src: FILE, trg: FILE}",
}

IN_QUOTES = "put it in quotes"


def in_shell(key: str, text: str) -> str:
    """How to write, on a command line, text that YAML takes for something else: its shell removes quotes."""
    return f"in a shell write '{key}={json.dumps(text, ensure_ascii=False)}'"


def _phrase(error: ErrorDetails, key: Key, place: Place) -> str:
    """One of pydantic's errors about a value as a sentence that says what would be right."""
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "rule":
        return context["message"]
    if kind in _LIMITS:
        return f"{show(value)} is {_LIMITS[kind].format(**context)}"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"]) or [context["expected"]]
        guess = nearest(str(value), choices)
        ending = f"; did you mean '{guess}'?" if guess else ""
        return f"{show(value)} is not one of {', '.join(choices)}{ending}"
    if kind == "string_pattern_mismatch":
        return f"{show(value)} may hold letters, digits, spaces and . _ + - only, and not start with a mark"
    if kind == "string_too_short":
        return "is empty"
    expectation = _WANTED.get(kind.split("_")[0])
    if expectation is None:
        return f"{show(value)}: {error['msg']}"
    remedy = ""
    if kind == "string_type" and isinstance(value, bool | int | float | None):  # None: a space, perhaps
        remedy = f"; {IN_QUOTES}"
        if place.file and not place.line and place.key == key:  # from the command line
            name, typed = ".".join(key), place.file.partition("=")[2].strip()
            if not typed:
                return f'an empty value is null, not text; {in_shell(name, " ")}, or "" for no text'
            remedy = f"; {in_shell(name, typed)}"
    if kind.startswith("int_") and isinstance(value, float) and value.is_integer():
        remedy = f"; write {value:.0f}"
    return f"{show(value)} is not {expectation}{remedy}"


def nearest(word: str, words: Iterable[str]) -> str | None:
    """The known word that another one was probably meant to be."""
    return next(iter(difflib.get_close_matches(word.lower(), list(words), n=1)), None)


def _fields(model: type[BaseModel], path: Key) -> dict[str, FieldInfo]:
    """The keys that may stand in the section at `path`, in which <Name> is one of several sections."""
    choices = [model]
    for part in path:
        if part.startswith("<"):
            model = next((choice for choice in choices if part == f"<{choice.__name__}>"), model)
        elif part in model.model_fields:  # else the name of an entry, of which all are alike
            choices = [*_models_in(model.model_fields[part].annotation)] or [model]
            model = choices[0]
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _keys(model: type[BaseModel], path: Key = ()) -> Iterator[Key]:
    """All keys from the top, sections included."""
    for name, field in model.model_fields.items():
        yield (*path, name)
        for section in _models_in(field.annotation):
            yield from _keys(section, (*path, name))


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models_in(part)
