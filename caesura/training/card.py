"""The model card: a description of a model folder for the person who opens it."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from caesura import __version__
from caesura.config import Config, Files
from caesura.config.sections import SegmenterComponent
from caesura.data.files import write_whole
from caesura.evaluation.evaluate import Evaluation
from caesura.evaluation.rates import aim, off_rate
from caesura.inference import Translator
from caesura.schedules import is_schedule, shown
from caesura.segmenters.figures import Figure

CARD = "README.md"


def write_card(folder: Path, model: Translator, evaluation: Evaluation, validation: dict[str, Any]) -> None:
    """Write README.md: data, scores with signatures, seed, versions, command."""
    config = model.config
    train = config.data.train
    names = f"`{train.src.name}`, `{train.trg.name}`" if isinstance(train, Files) else f"`{train.name}`"
    place = shown_place(folder)
    card = f"""# {config.name}

{introduction(config, model.parameter_count())}

On the dev set, greedy:

{figures(evaluation.record(), model.segmenter.figures)}

Trained on {names} with seed {config.training.seed}: best after {validation["update"]} updates,
{validation["sentences"]} sentences, {validation["seconds"]:.0f} seconds on {model.device.type}.

Made with caesura {__version__}, torch {torch.__version__}, sacrebleu {sacrebleu.__version__},
Python {platform.python_version()}. To repeat it: `caesura train {place}/config.yaml --out NEW_FOLDER`.

{usage(folder)}
"""
    write_whole(folder / CARD, card.encode(errors="replace"))  # a folder may have any name


def shown_place(folder: Path) -> str:
    """The folder's name on a card: the rest of an absolute path means nothing elsewhere."""
    return folder.name if folder.is_absolute() else str(folder)


def usage(folder: Path) -> str:
    """The paragraph on how to use a model."""
    place = shown_place(folder)
    return f"""To use it: `caesura translate {place} < text`, or in Python
`caesura.Translator.from_pretrained("{place}").translate([...])`."""


def introduction(config: Config, parameters: int) -> str:
    """A model's languages, size and parts."""
    src, trg, model = config.data.src, config.data.trg, config.model
    segmenter, decoder = model.segmenter, model.decoder
    return f"""A Caesura translation model from {src.lang} ({src.level}) to {trg.lang} ({trg.level}), \
{parameters:,} parameters.

- segmenter: {segmenter.type}, {_tau(segmenter)}{_listed(segmenter.options)}
- encoder: {model.encoder.type}{_listed(model.encoder.options)}
- decoder: {decoder.type}, tau {shown(decoder.penalty_weight)}{_listed(decoder.options)}{_given(config)}"""


def _tau(segmenter: SegmenterComponent) -> str:
    """The weight of its penalty, or a note that a rate sets it."""
    options = segmenter.options
    rate, cutter = options.get("rate"), options.get("cutter", segmenter.type)
    kind = cutter.get("type") if isinstance(cutter, dict) else cutter
    if rate and rate.get("by", "pi") in ("pi", None) and kind == "act":
        return "tau set by the rate"
    return f"tau {shown(segmenter.penalty_weight)}"


def _given(config: Config) -> str:
    """Where given cuts of the source come from, if there are any."""
    if (cuts := config.data.cuts) is None:
        return ""
    options = {name: value for name, value in cuts.model_dump(mode="json").items() if value not in (None, "")}
    kind = options.pop("type")
    files = {name: Path(value).name for name, value in options.items()} if kind == "file" else options
    weight = config.model.segmenter.imitation_weight
    use = "given to" if weight is None else f"imitated with weight {shown(weight)} by"
    return f"\n- cuts {use} the segmenter: {kind}{_listed(files)}"


def _listed(options: Mapping[str, Any]) -> str:
    return "".join(f", {name} {_value(value)}" for name, value in options.items() if value is not None)


def _value(value: Any) -> str:
    """A value as text; strings in quotes, so that a space can be seen."""
    if is_schedule(value):
        return shown(value)
    if not isinstance(value, dict):
        return repr(value)
    options = {name: v for name, v in value.items() if name != "type"}
    listed = _listed(options).removeprefix(", ")
    return f"{value.get('type', '')} ({listed})".strip() if listed else str(value.get("type", ""))


def figures(record: Mapping[str, Any], segmenter_figures: Iterable[Figure]) -> str:
    """A list of the values in an evaluation's record, with those of the segmenter's figures."""
    scores, cut, written = (record[name] for name in ("scores", "segments", "output_segments"))
    lines = [
        f"BLEU {scores['bleu']:.2f} (`{scores['signatures']['bleu']}`)",
        f"chrF2 {scores['chrf']:.2f} (`{scores['signatures']['chrf']}`)",
        f"chrF, order 2: {scores['chrf_bigram']:.2f} (`{scores['signatures']['chrf_bigram']}`)",
        f"exactly right: {scores['exact']:.1%} of {scores['sentences']} lines",
        f"segment length: mean {cut['mean']:.3f}{aim(cut.get('target'))}, "
        f"longest {cut['longest']} characters",
    ]
    if off := off_rate(cut["mean"], cut.get("target")):
        lines.append(f"off its rate: {off}")
    if written is not None:
        lines.append(f"segment length of outputs: mean {written['mean']:.3f}, longest {written['longest']}")
    for figure in segmenter_figures:
        if figure.name in record["figures"]:
            value = figure.shown(record["figures"][figure.name])
            lines.append(f"{figure.heading}: {value} ({figure.unit}): {figure.definition}")
    return "\n".join(f"- {line}" for line in lines)
