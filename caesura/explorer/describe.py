"""What the page learns about a model before it asks anything, and the curves of its training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from caesura.data.entropy import EntropyModelCuts
from caesura.errors import InputError
from caesura.explorer import schema
from caesura.explorer.refused import Refused
from caesura.explorer.rules import rules_of
from caesura.explorer.shelf import Shelf, Slot, live_rate
from caesura.inference import Translator
from caesura.segmenters.parts import Segmenter
from caesura.training.journal import read_records

POINTS = 400  # of a curve, at most
EXAMPLES = 4  # sentences
LONGEST = 80  # characters of an example
KINDS = ("start", "validation", "train")  # of records that have numbers to draw
LEFT_OUT = {"update", "epoch", "seconds", "sentences", "threads", "parameters", "clipped"}

# Sentences to start from if the folder's log has none, by source language.
SENTENCES = {
    "de": (
        "Ich habe meinen Regenschirm im Zug vergessen.",
        "Sie möchte Ärztin werden.",
        "Die Kinder spielen im Garten.",
        "Wann fährt der nächste Bus nach Hause?",
    ),
    "en": ("I left my umbrella on the train.", "When does the next bus leave?"),
    "fr": ("J'ai oublié mon parapluie dans le train.", "Quand part le prochain bus ?"),
    "ja": ("電車に傘を忘れました。", "次のバスはいつ来ますか。"),
}


def described(slot: Slot, shelf: Shelf) -> schema.Model:
    """A model for /api/models; if it cannot be loaded, `problem` says why."""
    try:
        loaded = slot.current()
    except Refused as problem:
        return schema.Model(
            name=slot.name, running=slot.running, history=slot.has_history, problem=str(problem)
        )
    model, rate = loaded.model, live_rate(loaded.model)
    segmenter, by_entropy = model.segmenter, isinstance(model.cuts, EntropyModelCuts)
    return schema.Model(
        name=slot.name,
        version=loaded.version,
        kind=kind_of(model),
        level=model.config.data.src.level,
        scores=segmenter.shiftable or segmenter.sums_to is not None or by_entropy,
        sums_to=segmenter.sums_to,
        live_rate=None if rate is None else schema.LiveRate(target=rate),
        rules=rules_of(model, shelf.entropy(model)),
        takes_cuts=segmenter.takes_cuts,
        target_cuts=model.decoder.segmenting,
        attention=None if (has := model.decoder.looks) is None else schema.Heads(**has._asdict()),
        running=slot.running,
        history=slot.has_history,
        examples=examples(slot.folder, model.config.data.src.lang),
    )


def kind_of(model: Translator) -> str:
    """The parts of a segmenter, such as bigru ▸ cif ▸ weighted; without parts, its type."""
    segmenter = model.segmenter
    if isinstance(segmenter, Segmenter):
        return " ▸ ".join(part.kind for part in (segmenter.reader, segmenter.cutter, segmenter.pooling))
    return str(model.config.model.segmenter.type)


def examples(folder: Path, language: str) -> list[str]:
    """Sentences to start from: those of the newest validation, else some in the language of the source."""
    sources = []
    for record in reversed(_records(folder)):
        if record["kind"] == "validation" and isinstance(rows := record.get("examples"), list):
            sources = [row["source"] for row in rows if isinstance(row, Mapping) and "source" in row]
            break
    short = [text for text in sources if isinstance(text, str) and 0 < len(text) <= LONGEST]
    return (short or [*SENTENCES.get(language, ())])[:EXAMPLES]


def training(slot: Slot) -> schema.TrainingAnswer:
    """The answer of /training: every number of the log as a curve."""
    try:
        loaded = slot.current()
    except Refused as problem:
        if problem.status == 410:
            raise
        loaded = None  # before the first validation there are curves already
    records = [record for record in _records(slot.folder) if isinstance(record.get("update"), int)]
    curves: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        if record["kind"] in KINDS:
            for name, value in _numbers(record):
                curves.setdefault(name, []).append((record["update"], value))
    return schema.TrainingAnswer(
        model=slot.name,
        version=None if loaded is None else loaded.version,
        running=slot.running,
        shown=None if loaded is None else loaded.update,
        update=max((record["update"] for record in records), default=None),
        curves={name: thinned(points) for name, points in curves.items() if len(points) > 1},
    )


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most POINTS of a curve, evenly chosen; the last one is always among them."""
    step = -(-len(points) // POINTS)
    return [*points[::-1][::step]][::-1]


def _numbers(record: Mapping[str, Any]) -> list[tuple[str, float]]:
    return [
        (name, float(value))
        for name, value in record.items()
        if name not in LEFT_OUT
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 1e300
        and math.isfinite(value)
    ]


def _records(folder: Path) -> list[dict[str, Any]]:
    try:
        return read_records(folder)
    except (InputError, OSError) as problem:
        raise Refused(503, f"the log of this training cannot be read: {problem}", "model") from problem
