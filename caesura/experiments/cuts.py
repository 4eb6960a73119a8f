"""`python -m caesura.experiments.cuts MODEL` measures where a trained model cuts; a sweep does it for each.

Boundaries against white space and gold, and how coordinated halting is, on a sample of the config's test set
(else its dev set), as one line of JSON. Nothing is searched, so it takes seconds. On request, what moving the
cuts of some sentences would change: gradient fidelity and flips.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from caesura.analysis.agreement import Agreement, Agreements, with_own_text
from caesura.analysis.coordination import Coordination, coordination
from caesura.analysis.gold import Gold, read_gold
from caesura.analysis.lines import Line, read_text, subsample
from caesura.analysis.moved import movable, move_cuts
from caesura.errors import explain
from caesura.evaluation.pieces import join_pieces
from caesura.inference import Translator
from caesura.streams import print_json
from caesura.training.prepare import parallel_text

SAMPLE = 2_000  # sentences
EXAMPLES, SHORT, LONG = 2, 40, 70  # sentences that are shown, and the characters that they have


def measure(
    model: Translator, gold: Gold | None = None, sample: int = SAMPLE, moved: int = 0
) -> dict[str, Any]:
    """Boundary scores against every reference there is, and the coordination of both sides' halting.

    With `moved`, also the fidelity and flips of that many sentences.
    """
    lines = subsample([line for line in _lines(model) if line.source.strip()], sample, seed=1)
    cuts = [output.segmentation for output in model.process([line.source for line in lines], None)]
    agreements = Agreements(None, gold)
    for line, cut in zip(lines, cuts, strict=True):
        agreements.add(line.number, line.source, cut.bounds, line.gold)
    tables = with_own_text(agreements.result(), model, gold)
    halting: dict[str, Coordination | None] = {"source": coordination(cuts), "target": None}
    if model.decoder.segmenting:  # forced through the references, as in training, which the paper speaks of
        targets = [line.reference or "" for line in lines]
        halting["target"] = coordination(model.segment_targets([line.source for line in lines], targets))
    chosen = [line for line in lines if movable(line.source, line.reference)][:moved]
    moves = move_cuts(model, [line.source for line in chosen], [line.reference or "" for line in chosen])
    examples = [
        join_pieces(cut.shown)
        for line, cut in zip(lines, cuts, strict=True)
        if SHORT <= len(line.source) <= LONG
    ]
    return {
        "sentences": len(lines),
        "examples": examples[:EXAMPLES] if moved else [],
        "moved": None if moves is None else asdict(moves),
        "boundaries": {table.reference: _boundaries(table) for table in tables},
        "coordination": {side: asdict(c) if c else None for side, c in halting.items()},
    }


def _lines(model: Translator) -> list[Line]:
    data = model.config.data
    text = parallel_text(data.test or data.dev)
    model.read_cuts(text.src)
    trg = None if text.trg is None else str(text.trg)
    return list(read_text(str(text.src), trg, data.errors, model.config.testing.max_input))


def _boundaries(table: Agreement) -> dict[str, float]:
    """The model's scores, beside those of single characters and of as many cuts at random places."""
    model, every = table.rows["model"], table.rows["every character"]
    scores = {"gold": model.gold, "precision": model.precision, "recall": model.recall, "f1": model.f1}
    return {**scores, "chance": table.chance, "characters": every.f1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure one model folder; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m caesura.experiments.cuts", description=__doc__)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    parser.add_argument("--gold", metavar="FILE", help="a file of gold segments (docs/analysis.md)")
    parser.add_argument("--sample", type=int, default=SAMPLE, metavar="N", help="sentences, at most")
    parser.add_argument("--moved", type=int, default=0, metavar="N", help="sentences whose cuts are moved")
    options = parser.parse_args(arguments)
    try:
        import torch

        model = Translator.from_pretrained(options.model)
        if model.config.training.device != "cpu" and torch.cuda.is_available():
            model.to("cuda")
        gold = read_gold(options.gold) if options.gold else None
        result = measure(model, gold, options.sample, options.moved)
    except Exception as problem:
        return explain(problem)
    print_json(result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
