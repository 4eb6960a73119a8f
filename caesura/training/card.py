"""The model card: what a model folder holds, for the person who opens it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import sacrebleu
import torch

from caesura import __version__
from caesura.config import Files
from caesura.data.files import write_beside
from caesura.evaluation.evaluate import Evaluation
from caesura.model import Translator

CARD = "README.md"


def write_card(folder: Path, model: Translator, found: Evaluation, validation: dict[str, Any]) -> None:
    """Write README.md: data, scores with signatures, seed, versions, command."""
    config, scores = model.config, found.scores
    train = config.data.train
    names = f"`{train.src.name}`, `{train.trg.name}`" if isinstance(train, Files) else f"`{train.name}`"
    share = f"{found.gradient_share:.1%}" if found.gradient_share is not None else "no halting unit"
    src, trg, segmenter, decoder = (
        config.data.src,
        config.data.trg,
        config.model.segmenter,
        config.model.decoder,
    )
    output = found.output_segments
    cut = f"\n- segment length of outputs: mean {output.mean:.3f}, longest {output.longest}" if output else ""
    card = f"""# {config.name}

A Caesura translation model from {src.lang} ({src.level}) to {trg.lang} ({trg.level}),
{model.parameter_count():,} parameters. Segmenter: {segmenter.type}, tau {segmenter.tau:g}, options
{segmenter.options}. Decoder: {decoder.type}, tau {decoder.tau:g}, options {decoder.options}.

On the dev set, greedy:

- BLEU {scores.bleu:.2f} (`{scores.signatures["bleu"]}`)
- chrF2 {scores.chrf:.2f} (`{scores.signatures["chrf"]}`)
- chrF, order 2: {scores.chrf_bigram:.2f} (`{scores.signatures["chrf_bigram"]}`)
- exactly right: {scores.exact:.1%} of {scores.sentences} lines
- segment length: mean {found.segments.mean:.3f}, longest {found.segments.longest} characters{cut}
- characters whose halting score gets a gradient: {share}

Trained on {names} with seed {config.training.seed}: best after {validation["update"]} updates,
{validation["sentences"]} sentences, {validation["seconds"]:.0f} seconds on {model.device.type}.

Made with caesura {__version__}, torch {torch.__version__}, sacrebleu {sacrebleu.__version__},
Python {platform.python_version()}. To repeat it: `caesura train {folder.name}/config.yaml --out NEW_FOLDER`.

To use it: `caesura translate {folder.name} < text`, or in Python
`caesura.Translator.from_pretrained("{folder.name}").translate([...])`.
"""
    with write_beside(folder / CARD) as file:
        file.write(card.encode())
