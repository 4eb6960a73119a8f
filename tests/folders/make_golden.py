"""Writes the golden folder of the format that this version writes; earlier ones must never change."""

import inspect
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from helpers import ACT, ACT_DECODER, tiny_model

from caesura.components import _PARTS
from caesura.config import Config, Section
from caesura.model_folder import FORMAT


def config_keys() -> list[str]:
    """Every key that the config of a model folder may have: `model.segmenter.epsilon (act)`."""
    return sorted([*_keys(Config, ""), *_options()])


def _keys(section: type[Section], above: str) -> Iterator[str]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if inspect.isclass(kind) and issubclass(kind, Section):
            yield from _keys(kind, f"{above}{name}.")
        else:
            yield above + name


def _options() -> Iterator[str]:
    for part, (registry, given) in _PARTS.items():
        for kind, place in registry.items():
            if isinstance(place, str):  # what tests register are classes
                module, _, name = place.partition(":")
                for option in inspect.signature(getattr(import_module(module), name)).parameters:
                    if option not in given:
                        yield f"model.{part}.{option} ({kind})"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) / f"format{FORMAT}"
    model = tiny_model(ACT, decoder=ACT_DECODER, seed=5, scale=2.0).float()
    model.save_pretrained(folder)
    folder.with_suffix(".keys").write_text("\n".join(config_keys()) + "\n")
    print(model.translate(["abc", "hgfedcba", ""]), model.segment(["abc", "hgfedcba", ""]))
