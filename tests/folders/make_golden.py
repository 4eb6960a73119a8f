"""Writes the golden folder of the format that this version writes; earlier ones must never change."""

import sys
from pathlib import Path

from helpers import ACT, ACT_DECODER, tiny_model

from caesura.model import FORMAT

if __name__ == "__main__":
    folder = Path(sys.argv[1]) / f"format{FORMAT}"
    model = tiny_model(ACT, decoder=ACT_DECODER, seed=5, scale=2.0).float()
    model.save_pretrained(folder)
    print(model.translate(["abc", "hgfedcba", ""]), model.segment(["abc", "hgfedcba", ""]))
