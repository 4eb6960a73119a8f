"""A small recipe, and what `caesura reproduce` makes of it."""

import csv
from pathlib import Path

from cli.program import Done, caesura

RECIPE = """\
title: Numbers
paper_text: {train: 120, dev: 12, test: 12}
tables:
  first:
    title: The first table
    settings: [training.updates=12, training.validation_freq=100]
    rows:
      word:
        config: word.yaml
        paper: {bleu: 22.11, chrf: 0.44, parameters: 80_500_000, segment_length: 4.66, longest_segment: 30, \
training_time: 23h, system: 30k words}
      char: {config: char.yaml, title: characters, seeds: [1, 2]}
  second:
    title: The second table
    settings: [training.updates=10]
    rows:
      act: {config: act.yaml}
"""


def run(recipe: Path, *options: object) -> Done:
    """Reproduce it into out/, beside its folder."""
    out = recipe.parent / "out"
    return caesura("reproduce", recipe, "--data", recipe / "data", "--out", out, "--no-report", *options)


def rows(recipe: Path) -> list[dict[str, str]]:
    """The lines of the CSV."""
    with (recipe.parent / "out" / "table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def statuses(recipe: Path) -> dict[str, str]:
    """What became of each training."""
    ours = (row for row in rows(recipe) if row["by"] == "ours")
    return {f"{row['table']}-{row['system']}-{row['seed']}": row["status"] for row in ours}
