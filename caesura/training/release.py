"""Packs a trained model for shipping: half as many bytes per weight, no paths of the machine that trained it.

`python -m caesura.training.release RUN CARD OUT` does it for the model of a run; CARD is the part of its card
about the text.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from caesura.config import Config, Files
from caesura.data.files import write_whole
from caesura.inference import Translator
from caesura.training.card import CARD


def release(run: Path, about: str, out: Path) -> None:
    """Write the model of a run to `out` with weights in bfloat16, and its card with `about` at the end."""
    model = Translator.from_pretrained(run)
    model.config = _elsewhere(model.config)
    model.save_pretrained(out, torch.bfloat16)
    card = (run / CARD).read_text(encoding="utf-8")
    card = card.replace(f"`caesura train {run.name}/config.yaml --out NEW_FOLDER`", f"`make {out.name}`")
    rounded = "\nThe weights were rounded to bfloat16 after these scores were taken.\n"
    write_whole(out / CARD, f"{card}{rounded}\n{about}")


def _elsewhere(config: Config) -> Config:
    """The config with text files in data/NAME, wherever they were."""
    texts = {}
    for split in ("train", "dev", "test"):
        files = getattr(config.data, split)
        if isinstance(files, Files):
            moved = {side: Path("data", config.name, path.name) for side, path in files}
            texts[split] = files.model_copy(update=moved)
    return config.model_copy(update={"data": config.data.model_copy(update=texts)})


if __name__ == "__main__":
    release(Path(sys.argv[1]), Path(sys.argv[2]).read_text(encoding="utf-8"), Path(sys.argv[3]))
