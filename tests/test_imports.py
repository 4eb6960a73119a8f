"""Imports point one way, a layer needs torch and numpy alone, and the command line answers without torch."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import caesura

PACKAGE = Path(caesura.__file__).parent

# DESIGN.md's order, with small modules where they belong: a module imports from its own place and before it.
ORDER = (
    *("visible", "errors", "signals", "streams", "schedules"),
    *("config", "kernels", "data", "layers", "segmenters", "encoders", "decoders", "search"),
    *("components", "model_folder", "translator", "output", "inference"),
    *("evaluation", "training", "analysis", "terminal", "experiments", "explorer", "cli"),
)
OPTIONAL = ("pydantic", "typer", "rich", "yaml", "tokenizers", "sacrebleu", "safetensors", "matplotlib")


def imported(path: str, source: str) -> Iterator[str]:
    """The modules of this package that a module imports, at its top or inside its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "caesura")
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                home = ["caesura", *path.split("/")[:-1]]
                module = ".".join([*home[: len(home) + 1 - node.level], *filter(None, [module])])
            if module == "caesura":
                names = [alias.name for alias in node.names if not alias.name.startswith("__")]
                yield from (caesura._HOME.get(name, f"caesura.{name}") for name in names)
            elif module.startswith("caesura."):
                yield module


def against_the_order(path: str, source: str) -> list[str]:
    """What a module (its path inside the package) imports from after its own place."""
    places = {part: place for place, part in enumerate(ORDER)}
    position = places.get(path.split("/")[0].removesuffix(".py"), len(ORDER))
    parts = [name.partition(".")[2].split(".")[0] for name in imported(path, source)]
    return [part for part in parts if places.get(part, len(ORDER)) > position]


def test_every_module_has_its_place_in_the_order() -> None:
    places = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")}
    assert places - {"__init__", "__main__"} <= {*ORDER}


def test_no_module_imports_from_after_its_place() -> None:
    paths = [path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")]
    modules = [path for path in paths if path not in ("__init__.py", "__main__.py")]
    assert len(modules) > 20
    wrong = {path: against_the_order(path, (PACKAGE / path).read_text(encoding="utf-8")) for path in modules}
    assert {path: parts for path, parts in wrong.items() if parts} == {}


@pytest.mark.parametrize(
    ("path", "source", "wrong"),
    [
        ("segmenters/act.py", "from caesura.translator import Loss", ["translator"]),
        ("data/corpus.py", "def f():\n    from caesura import Translator, __version__", ["inference"]),
        ("search/beam.py", "import caesura.training.loop as l, os", ["training"]),
        ("errors.py", "from caesura import streams", ["streams"]),
        ("data/numerals/morphs.py", "from ...config import Config\nfrom ... import cli", ["cli"]),
        ("translator.py", "from caesura.inference import Translator", ["inference"]),
        ("inference.py", "from caesura.search.beam import beam\nfrom caesura.translator import Loss", []),
    ],
)
def test_the_order_would_catch(path: str, source: str, wrong: list[str]) -> None:
    assert against_the_order(path, source) == wrong


def python(program: str) -> str:
    """What a fresh interpreter prints, warnings being errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


BLOCKED = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {OPTIONAL!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocker())
"""


def test_layers_their_training_and_a_search_need_torch_and_numpy_alone() -> None:
    program = """
import torch
import caesura
from caesura.decoders.recurrent import RecurrentDecoder
from caesura.decoders.transformer import TransformerDecoder
from caesura.encoders.recurrent import RecurrentEncoder
from caesura.kernels.adam import Adam
from caesura.search.beam import beam_search
from caesura.search.greedy import greedy
from caesura.search.sampling import sample
from caesura.segmenters.readers.blocks import Blocks
from caesura.segmenters.readers.transformer import Transformer
for layer in (caesura.ActSegmenter(9, 4, 3, 5), caesura.LookupSegmenter(9, 5)):
    segments = layer(torch.tensor([[4, 5, 3], [3, 0, 0]]), torch.tensor([3, 1]))
    encoded = RecurrentEncoder(layer.output_dim, 2)(segments.vectors, segments.lengths)
    decoder, limits = RecurrentDecoder(9, 4, 4, 3, 4, 2), torch.tensor([4, 4])
    print(len(beam_search(decoder, encoded, limits)), len(greedy(decoder, encoded, limits)))
    print(len(sample(decoder, encoded, limits, [0, 1])))
    optimizer = Adam(layer.parameters())
    optimizer.zero_grad()
    segments.vectors.sum().backward()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})
with torch.device("meta"):  # as every command begins, to check the config
    TransformerDecoder(9, 4, 8, 2, 7), Blocks(9, 4), Transformer(9, 4, heads=2, feed_forward=7)
print({"torch._dynamo", "sympy"} & {*sys.modules})  # seconds for nothing
"""
    assert python(BLOCKED + program).split() == [*["2"] * 6, "set()"]


def test_the_blocker_of_the_test_above_does_block() -> None:
    program = "try:\n    import caesura.config\nexcept ModuleNotFoundError as e:\n    print(e)"
    assert python(BLOCKED + program).startswith("No module named")


@pytest.mark.skipif(importlib.util.find_spec("caesura.cli") is None, reason="no command line yet")
def test_the_command_line_is_imported_without_torch() -> None:
    assert (
        python("import sys, caesura.cli.program; print('torch' in sys.modules, 'typer' in sys.modules)")
        == "False True"
    )
