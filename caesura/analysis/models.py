"""Models and their search in words."""

from __future__ import annotations

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
    name = {"act": "ACT-ENC"}.get(segmenter.type, segmenter.type)
    return f"{name} on {config.data.src.level} symbols, tau {segmenter.tau:g}{more}, {depth}"


def search_name(model: Translator, beam: int | None) -> str:
    """The search in words."""
    width = model.config.testing.beam_size if beam is None else beam
    return "greedy" if width == 1 else f"beam {width}"
