"""Parts from outside the package, from training to sweeps: no other file has to know them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from cli.program import CONFIG, DECODER, caesura, refusal, write_corpus
from helpers import close, ragged
from toys import Bigrams, Edges, Threshold
from training.outcomes import outcome, run
from wording import refuses

from caesura.components import resolve
from caesura.config import load_config
from caesura.errors import InputError
from caesura.experiments.processes import Children
from caesura.inference import Translator
from caesura.segmenters.parts import Segmenter

SEGMENTER = (
    "{reader: {type: bigrams, embedding_dim: 6}, cutter: {type: threshold, length: 3}, pooling: edges}"
)
PROGRAM = "import toys; from {} import main; main()"
BOUNDS = ("training.updates=14", "training.validation_freq=35", "training.keep_last=1")
ROOT = Path(__file__).parents[2]


def write_toy(folder: Path, segmenter: str = SEGMENTER) -> Path:
    """A config with the toys, and its corpus."""
    write_corpus(folder, train=45, dev=5)
    values = {"system": "toy", "level": "char", "folder": folder, "decoder": DECODER}
    path = folder / "toy.yaml"
    path.write_text(CONFIG.format(**values, segmenter=segmenter), encoding="utf-8")
    return path


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}


def test_the_toys_make_a_layer() -> None:
    torch.manual_seed(0)
    layer = Segmenter(Bigrams(11, 2), Threshold(4), Edges()).double()
    assert (layer.loss_weights, layer.output_dim) == ({"distance": 0.5}, 4)
    symbols, lengths = ragged([9, 1, 0, 5], 11, torch.Generator().manual_seed(0))
    segments = layer(symbols, lengths)
    assert segments.scores is not None
    for b, n in enumerate(lengths.tolist()):
        alone = layer(symbols[b : b + 1, :n], lengths[b : b + 1])
        count = int(alone.lengths[0])
        close(segments.vectors[b, :count], alone.vectors[0, :count])
        close(segments.cuts.losses["distance"][b], alone.cuts.losses["distance"][0])
        states = layer.reader(symbols[b : b + 1, :n], lengths[b : b + 1])[0]
        bounds = [0, *(int(t) + 1 for t in alone.ends[0].nonzero())]
        for k, (begin, end) in enumerate(pairwise(bounds)):
            close(segments.vectors[b, k], (states[begin] + states[end - 1]) / 2)


def test_a_toys_mistake_is_refused_with_its_place(tmp_path: Path) -> None:
    config = write_toy(tmp_path, SEGMENTER.replace("length: 3", "length: 0.5"))
    problem = refusal(caesura("train", config, "--out", tmp_path / "run"))
    line = next(n for n, text in enumerate(config.read_text().splitlines(), 1) if "segmenter" in text)
    assert problem.startswith(f"{config}:{line}: ")
    assert "length" in problem


def test_toys_are_trained_stopped_and_used(tmp_path: Path) -> None:
    path = write_toy(tmp_path)
    config = load_config(path, BOUNDS)
    run(config, tmp_path / "whole")
    run(config, tmp_path / "stopped", 6, 10)
    expected = outcome(tmp_path / "whole")
    assert outcome(tmp_path / "stopped") == expected
    assert "score" in expected["validations"][-1]
    assert any("score" in record for record in expected["metrics"])

    model = Translator.from_pretrained(tmp_path / "whole")
    lines = (tmp_path / "dev.de").read_bytes()
    done = caesura("translate", tmp_path / "whole", stdin=lines)
    assert (done.status, done.lines) == (0, model.translate(lines.decode().splitlines()))
    done = caesura("segment", tmp_path / "whole", stdin=lines)
    assert (done.status, len(done.lines)) == (0, 5)
    given = ("--src", tmp_path / "dev.de", "--trg", tmp_path / "dev.en")
    done = caesura("evaluate", tmp_path / "whole", *given)
    assert done.status == 0, done.out + done.err


def test_a_toys_loss_is_weighed_as_it_asks(tmp_path: Path) -> None:
    config = load_config(write_toy(tmp_path), (*BOUNDS, "training.updates=1"))
    run(config, tmp_path / "run")
    model = Translator.from_pretrained(tmp_path / "run")
    batch = torch.tensor([[5, 6, 7, 3]]), torch.tensor([4])
    segments = model.segmenter(*batch)
    decoded = model.decoder(model.encoder(segments.vectors, segments.lengths), *batch)
    terms = model.auxiliary(segments, decoded, torch.tensor([True]))
    close(sum(terms), 0.5 * segments.cuts.losses["distance"][0], 1e-7)
    assert segments.cuts.losses["distance"] > 0


@pytest.mark.slow
def test_a_killed_toy_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    config = write_toy(tmp_path)
    given = [config, "--out", tmp_path / "killed", *(word for bound in BOUNDS for word in ("--set", bound))]
    command = [sys.executable, "-c", PROGRAM.format("caesura.cli"), "train", *map(str, given)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL) as child:
        deadline = time.monotonic() + 120
        while not [*(tmp_path / "killed" / "checkpoints").glob("*")] and time.monotonic() < deadline:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
    assert child.returncode in (-signal.SIGKILL, 0)  # 0: it had ended before this process came to its turn
    assert caesura("train", *given).status == 0
    run(load_config(config, BOUNDS), tmp_path / "whole")
    assert outcome(tmp_path / "killed") == outcome(tmp_path / "whole")


def start(
    children: Children,
    name: str,
    command: Sequence[str],
    log: Path,
    extra: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> None:
    """In the place of `Children.start`: the same program, which knows the toys."""
    python, option, module, *arguments = command
    assert option == "-m"
    variables = {**environment(), **(extra or {})}
    START(children, name, [python, "-c", PROGRAM.format(module), *arguments], log, variables, output)


START = Children.start


@pytest.mark.slow
@pytest.mark.usefixtures("sketched")
def test_toys_are_analyzed_and_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_toy(tmp_path)
    run(load_config(config, BOUNDS), tmp_path / "model")
    given = ("--src", tmp_path / "dev.de", "--trg", tmp_path / "dev.en")
    options = ("--sample", 5, "--bpe", 40)
    done = caesura("analyze", tmp_path / "model", *given, "--out", tmp_path / "report", *options)
    assert done.status == 0, done.out + done.err
    assert "mean score" in (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    shutil.copytree(tmp_path / "model", tmp_path / "other")
    done = caesura("compare", tmp_path / "model", tmp_path / "other", *given)
    assert done.status == 0, done.out + done.err

    monkeypatch.setattr(Children, "start", start)
    settings = [word for bound in BOUNDS for word in ("--set", bound)]
    over = ("--over", "model.segmenter.cutter.length=2", "--no-test")
    done = caesura("sweep", config, "--out", tmp_path / "sweep", *over, *settings)
    assert done.status == 0, done.out + done.err
    sweep = json.loads((tmp_path / "sweep" / "sweep.json").read_text(encoding="utf-8"))
    assert len(sweep["runs"]) == 1
    assert all("score" in entry["curve"] for entry in sweep["runs"])
    assert "mean score" in (tmp_path / "sweep" / "table.md").read_text(encoding="utf-8")


def test_what_contributing_shows_is_the_file_that_is_tested() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    toys = (Path(__file__).parent / "toys.py").read_text(encoding="utf-8")
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    shown = [re.sub(f"^{indent}", "", code, flags=re.MULTILINE) for indent, code in blocks]
    assert all(code in toys for code in shown)
    for name in ("class Bigrams", "class Threshold", "class Edges", "Figure(", "READERS["):
        assert any(name in code for code in shown), name


@pytest.mark.parametrize("name", ["bleu", "segments", "loss"])
def test_a_figure_cannot_take_the_name_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(Threshold, "figures", (replace(Threshold.figures[0], name=name),))
    with refuses(InputError, "", "model.segmenter: ", f"'{name}'"):
        resolve(load_config(write_toy(tmp_path)))


def test_a_loss_without_a_weight_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Threshold, "loss_weights", {})
    with refuses(InputError, "", "model.segmenter: ", "'distance'"):
        resolve(load_config(write_toy(tmp_path)))


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("cutter=bogus", "cutter.type: "),
        ("cutter=[every]", ""),
        ("reader=bigrams", "embedding_dim: "),
        ("rate=4", ""),
    ],
)
def test_a_part_that_is_set_anew_is_blamed_where_it_was_set(tmp_path: Path, setting: str, key: str) -> None:
    override = f"model.segmenter.{setting}"
    with refuses(InputError, f"--set {override}: ", key):
        resolve(load_config(write_toy(tmp_path), [override]))


def test_a_part_in_the_place_of_another_is_told_where_it_belongs(tmp_path: Path) -> None:
    config = write_toy(tmp_path)
    for setting in ("model.segmenter={type: cif}", "model.segmenter.reader={type: cif}"):
        with refuses(InputError, f"--set {setting}: ", "cutter: cif"):
            resolve(load_config(config, [setting]))
