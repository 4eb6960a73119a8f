"""Cuts that a segmenter learns and is not given, from a config to what is trained, resumed and saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.program import caesura
from training.outcomes import DROPOUT, check_resumed, configured, records, run
from wording import refuses

from caesura.analysis.defaults import without_defaults
from caesura.analysis.models import describe
from caesura.components import resolve
from caesura.config import Config
from caesura.data.corpus import PLACE
from caesura.data.tensors import load_tensors
from caesura.errors import InputError
from caesura.inference import Translator

pytestmark = pytest.mark.usefixtures("frequent_log")
READER = "reader: {type: bigru, embedding_dim: 6, size: 8}, output_dim: 6"
CUTTERS = {
    "act": "cutter: act, pooling: weighted",
    "routing": "cutter: routing, pooling: mean",
    "cif": "cutter: {type: cif, stein: 0.5}, pooling: weighted, rate: {target: 5.2}",
}
CUTS = "data.cuts={type: whitespace}"
ALIGNED = "data.cuts={type: alignment, target: 4.0, voc_limit: 40}"


def learning(corpus: Path, cutter: str, *settings: str) -> Config:
    """A segmenter that should learn to cut at spaces."""
    segmenter = f"{{{READER}, {CUTTERS[cutter]}}}" if cutter in CUTTERS else cutter
    return configured(corpus, "char", f"model.segmenter={segmenter}", *settings)


@pytest.mark.parametrize("cuts", [CUTS, ALIGNED])
def test_a_resumed_run_equals_an_uninterrupted_one(corpus: Path, tmp_path: Path, cuts: str) -> None:
    weight = "model.segmenter.imitation={start: 1.0, end: 0.0, updates: 10}"
    config = learning(corpus, "cif", cuts, weight, *DROPOUT)
    whole = check_resumed(config, tmp_path, 3, 10)
    logged = {record["update"]: record["imitation"] for record in records(whole, "train")}
    assert all(weight == max(0.0, 1 - (update - 1) / 10) for update, weight in logged.items())


def test_the_weight_is_not_an_option_of_the_segmenter(corpus: Path) -> None:
    tree = resolve(learning(corpus, "act", CUTS, "model.segmenter.imitation=0.5")).model_dump(mode="json")
    plain = without_defaults(tree)["model"]["segmenter"]
    assert plain["imitation"] == 0.5
    assert plain["cutter"] == {"type": "act"}


def test_with_a_weight_of_nothing_training_is_as_without_the_cuts(corpus: Path, tmp_path: Path) -> None:
    few = "training.updates=3"
    run(learning(corpus, "act", few), tmp_path / "without")
    run(learning(corpus, "act", few, CUTS, "model.segmenter.imitation=0.0"), tmp_path / "with")
    without, with_cuts = (
        load_tensors(tmp_path / name / "model.safetensors")[0] for name in ("without", "with")
    )
    assert without.keys() == with_cuts.keys()
    assert all(weight.equal(with_cuts[name]) for name, weight in without.items())


def test_a_model_learns_the_cuts_and_cuts_new_text_by_itself(corpus: Path, tmp_path: Path) -> None:
    offsets = {}
    for part in ("train", "dev"):
        lines = (corpus / f"{part}.de").read_text(encoding="utf-8").splitlines()
        cuts = [[at for at, character in enumerate(line) if character == " "] for line in lines]
        offsets[part] = corpus / f"{part}.cuts"
        offsets[part].write_text("".join(" ".join(map(str, row)) + "\n" for row in cuts), encoding="utf-8")
    given = f"data.cuts={{type: file, train: {offsets['train']}, dev: {offsets['dev']}}}"
    settings = ("model.segmenter.imitation=5.0", "training.updates=60", "training.validation_freq=600")
    run(learning(corpus, "routing", given, *settings), tmp_path)
    model = Translator.from_pretrained(tmp_path)
    text = (corpus / "dev.de").read_text(encoding="utf-8").splitlines()
    assert model.segment(text) != model.segment(text, cuts=[[]] * len(text))
    cuts = [{at for at, _ in enumerate(line) if line[at] == " "} for line in text]
    bounds = [{len("".join(pieces[:k])) for k in range(1, len(pieces))} for pieces in model.segment(text)]
    both = sum(len(a & b) for a, b in zip(cuts, bounds, strict=True))
    assert 2 * both / (sum(map(len, cuts)) + sum(map(len, bounds))) > 0.9
    done = caesura("segment", tmp_path, stdin=b"neun eins\n")
    assert (done.status, done.lines) == (0, ["neun|␣eins"])  # though its cuts were in files
    assert "on char symbols, imitation 5, " in describe(model)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "cuts imitated with weight 5 by the segmenter: file" in card


WEIGHT = "model.segmenter.imitation=1.0"
FEW = "training.updates=3"


def test_cuts_that_follow_an_alignment_are_learned_and_new_text_needs_none(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cached() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "numbers").iterdir()}

    monkeypatch.setenv(PLACE, str(tmp_path / "numbers"))
    run(learning(corpus, "cif", ALIGNED, WEIGHT, FEW), tmp_path)
    numbered = cached()
    assert any(name.endswith(".cut") for name in numbered)
    for name in numbered:  # they follow from the text, so nothing need be kept
        (tmp_path / "numbers" / name).unlink()
    run(learning(corpus, "cif", ALIGNED, WEIGHT, "training.updates=4"), tmp_path)
    assert cached() == numbered
    model = Translator.from_pretrained(tmp_path)
    assert "".join(model.segment(["neun eins"])[0]) == "neun eins"
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "imitated with weight 1 by the segmenter: alignment, target 4.0, voc_limit 40" in card


def test_a_rate_that_an_alignment_cannot_have_is_one_sentence_with_its_key(
    corpus: Path, tmp_path: Path
) -> None:
    with refuses(InputError, "--set data.cuts={type: alignment") as refused:
        run(learning(corpus, "cif", ALIGNED.replace("4.0", "1.0"), WEIGHT), tmp_path)
    assert "\n" not in str(refused.value)


def test_sentences_whose_cuts_are_not_known_teach_nothing(corpus: Path, tmp_path: Path) -> None:
    offsets = tmp_path / "train.cuts"
    text = f"data.cuts={{type: file, train: {offsets}}}"
    offsets.write_text("?\n" * 45, encoding="utf-8")
    run(learning(corpus, "act", text, "model.segmenter.imitation=9.0", FEW), tmp_path / "unknown")
    run(learning(corpus, "act", FEW), tmp_path / "without")
    offsets.write_text("?\n" * 44 + "\n", encoding="utf-8")
    run(learning(corpus, "act", text, "model.segmenter.imitation=9.0", FEW), tmp_path / "one")
    unknown, without, one = (
        load_tensors(tmp_path / name / "model.safetensors")[0] for name in ("unknown", "without", "one")
    )
    assert all(weight.equal(unknown[name]) for name, weight in without.items())
    assert not all(weight.equal(one[name]) for name, weight in without.items())


@pytest.mark.parametrize(
    ("segmenter", "settings"),
    [
        ("act", [WEIGHT]),
        ("act", [CUTS, "model.segmenter.imitation=-1.0"]),
        ("act", [CUTS, "model.segmenter.imitation={start: 1.0, end: -1.0, updates: 5}"]),
        ("act", [CUTS, "model.segmenter.imitation=soon"]),
        (f"{{{READER}, cutter: given, pooling: mean}}", [CUTS, WEIGHT]),
        ("{type: act, embedding_dim: 8, act_size: 12, output_dim: 12}", [CUTS, WEIGHT]),
    ],
)
def test_what_cannot_be_is_refused_before_training(corpus: Path, segmenter: str, settings: list[str]) -> None:
    with refuses(InputError, "--set model.segmenter.imitation=") as refused:
        resolve(learning(corpus, segmenter, *settings))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("cuts", [ALIGNED, "data.cuts={type: file, train: x}"])
def test_cuts_of_the_training_text_alone_have_to_be_learned(corpus: Path, cuts: str) -> None:
    with refuses(InputError, f"--set {cuts}: ", "model.segmenter.imitation") as refused:
        resolve(learning(corpus, "cif", cuts))
    assert "\n" not in str(refused.value)


def test_a_line_of_unknown_cuts_cannot_be_given(corpus: Path, tmp_path: Path) -> None:
    offsets = tmp_path / "train.cuts"
    offsets.write_text("?\n" * 45, encoding="utf-8")
    config = learning(corpus, "act", f"data.cuts={{type: file, train: {offsets}, dev: {offsets}}}")
    with refuses(InputError, f"{offsets}:1: "):
        run(config, tmp_path / "run")
