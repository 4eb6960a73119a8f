"""Models and their search in words."""

from __future__ import annotations

from typing import Any

from caesura.analysis.characters import visible
from caesura.model import Translator


def describe(model: Translator) -> str:
    """A model in a phrase."""
    config = model.config
    segmenter, options = config.model.segmenter, config.model.segmenter.options
    layers = config.model.encoder.options.get("num_layers", 1)
    depth = f"{layers} encoder layer{'s' if layers != 1 else ''}"
    if segmenter.type == "lookup":
        return f"{config.data.src.level} model, {depth}"
    epsilon = options.get("epsilon")
    more = f", epsilon {epsilon:g}" if isinstance(epsilon, float) else ""
    more += "" if model.segmenter.learn_halting else ", halting not learnt"
    more += f", cut after {visible(given)}" if (given := cut_after(model)) else ""
    name = {"act": "ACT-ENC"}.get(segmenter.type, segmenter.type)
    return f"{name} on {config.data.src.level} symbols, tau {segmenter.tau:g}{more}, {depth}"


def cut_after(model: Translator) -> str:
    """The characters that end a segment whatever the halting unit says."""
    return str(model.config.model.segmenter.options.get("cut_after", ""))


def search_settings(model: Translator, beam: int | None) -> dict[str, Any]:
    """What a score depends on besides the model and the text, for JSON."""
    testing = model.config.testing
    width = testing.beam_size if beam is None else beam
    return {"beam": width, "alpha": testing.alpha, "beta": testing.beta, "precision": testing.precision}


def search_name(model: Translator, beam: int | None) -> str:
    """The search in words; a greedy one asks for no scores of whole sentences."""
    beam, alpha, beta, precision = search_settings(model, beam).values()
    how = "greedy search" if beam == 1 else f"beam {beam}, alpha {alpha:g}, beta {beta:g}"
    return f"{how}, {precision}"
