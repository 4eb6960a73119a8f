"""The mark of a config stays what it was when a key with a default is added, and knows every other change."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli.program import write_config, write_corpus

from caesura.analysis.defaults import changed_options, with_defaults, without_defaults
from caesura.components import resolve
from caesura.config import Config, flat, load_config
from caesura.experiments.provenance import described, digest, is_mark_of
from caesura.experiments.recipe import Chosen, load_recipe, systems
from caesura.experiments.results import kept_metrics
from caesura.experiments.sweep_results import load
from caesura.segmenters import base
from caesura.segmenters.lookup import LookupSegmenter

PARTS = (
    "model.segmenter={reader: {type: gru, embedding_dim: 8, size: 6}, cutter: cif, pooling: weighted, "
    "rate: {target: 3}}"
)
RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture(scope="module")
def act(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, train=5, dev=2)
    return write_config(folder / "act.yaml", "act")


def tree(path: Path, *settings: str) -> dict[str, Any]:
    return described(resolve(load_config(path, settings)))


@pytest.mark.parametrize("settings", [(), (PARTS,), ("data.cuts={type: whitespace}",)])
def test_written_out_or_not_a_config_has_one_mark(act: Path, settings: tuple[str, ...]) -> None:
    whole = tree(act, *settings)
    short = without_defaults(whole)
    assert len(flat(short)) < len(flat(whole)) - 40
    assert digest(short) == digest(whole) == digest(described(load_config(act, settings)))
    assert with_defaults(short) == whole
    json.dumps(short)


@pytest.mark.parametrize(
    ("settings", "other"),
    [
        ((), "training.seed=2"),
        ((), "model.segmenter.tau=0.25"),
        ((), "model.segmenter.epsilon=0.25"),
        ((), "testing.beam_size=2"),
        ((), "data.cuts={type: whitespace}"),
        ((PARTS,), "model.segmenter.rate.target=4"),
        ((PARTS,), "model.segmenter.reader.dropout=0.5"),
        ((PARTS,), "model.segmenter.reader={type: bigru, embedding_dim: 8, size: 6}"),
    ],
)
def test_every_change_is_seen(act: Path, settings: tuple[str, ...], other: str) -> None:
    assert digest(tree(act, *settings, other)) != digest(tree(act, *settings))
    assert not is_mark_of(digest(tree(act, *settings)), tree(act, *settings, other))


def test_what_it_is_computed_on_does_not_count(act: Path) -> None:
    assert digest(tree(act, "training.device=cpu", "training.threads=1")) == digest(tree(act))


def test_a_new_option_of_a_part_changes_no_mark(act: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Newer(LookupSegmenter):
        def __init__(self, vocab_size: int, embedding_dim: int, sparkle: float = 0.5) -> None:
            super().__init__(vocab_size, embedding_dim)

    settings = ("model.segmenter={type: lookup, embedding_dim: 8}",)
    before = tree(act, *settings)
    mark = digest(before)
    monkeypatch.setitem(base.SEGMENTERS, "lookup", Newer)
    after = tree(act, *settings)
    assert after["model"]["segmenter"]["sparkle"] == 0.5
    assert digest(after) == digest(before) == mark
    assert with_defaults(before) == after
    assert digest(tree(act, *settings, "model.segmenter.sparkle=0.25")) != mark


def test_a_part_that_is_not_registered_is_left_as_it_is(act: Path) -> None:
    stranger = tree(act)
    segmenter = {"type": "elsewhere", "tau": 0.0, "imitation": None, "halting_bias": 1.0}
    stranger["model"]["segmenter"] = segmenter
    assert with_defaults(stranger)["model"]["segmenter"] == stranger["model"]["segmenter"]
    assert digest(stranger) != digest(tree(act))


def test_options_are_told_where_they_are_not_the_defaults() -> None:
    cutter = {"type": "act", "epsilon": 0.25, "halting_bias": 1.0}
    reader = {"type": "gru", "embedding_dim": 8, "size": 6, "dropout": 0.0}
    values = {"type": "parts", "tau": 0.5, "reader": reader, "cutter": cutter, "pooling": "weighted"}
    assert changed_options("segmenter", values | {"rate": None, "output_dim": None}) == {
        "reader": {"type": "gru", "embedding_dim": 8, "size": 6},
        "cutter": {"type": "act", "epsilon": 0.25},
        "pooling": {"type": "weighted"},
    }


def test_files_of_cuts_are_told_by_their_names(act: Path) -> None:
    files = "data.cuts={type: file, train: /one/a.cuts, dev: /two/b.cuts}"
    cuts = described(load_config(act, [files]))["data"]["cuts"]
    assert (cuts["train"], cuts["dev"], cuts["test"]) == ("a.cuts", "b.cuts", None)
    moved = described(load_config(act, [files.replace("/one", "/three")]))
    assert digest(moved) == digest(described(load_config(act, [files])))


def test_a_mark_of_an_earlier_version_is_known(act: Path) -> None:
    """Of docs/results/multi30k, whose recipe is as it was."""
    path = RESULTS / "multi30k" / "metrics" / "systems-char-1.jsonl"
    mark = json.loads(path.read_bytes().splitlines()[-1])["digest"]
    recipe = RESULTS.parents[1] / "recipes" / "multi30k" / "char.yaml"
    assert is_mark_of(mark, described(load_config(recipe, ["training.seed=1"])))
    assert not is_mark_of(mark, described(load_config(recipe, ["training.seed=2"])))


def test_published_sweeps_have_the_marks_of_this_version() -> None:
    sweep = load(RESULTS / "freedom" / "words.json")
    for run in sweep.runs:
        config = Config.model_validate(sweep.config(run))
        assert run.digest == digest(described(resolve(config)))
        assert run.base in sweep.configs
    assert len({run.digest for run in sweep.runs}) == len(sweep.runs)
    assert load(RESULTS / "freedom" / "fixed.json").runs[0].alike


@pytest.mark.parametrize("ending", [".xz", ".gz"])
def test_packed_text_has_the_mark_of_the_same_text_unpacked(act: Path, ending: str) -> None:
    plain = "data.test={src: /one/test.de, trg: /one/test.en}"
    packed = plain.replace(".de", f".de{ending}").replace(".en", f".en{ending}")
    one, other = (described(load_config(act, [setting])) for setting in (plain, packed))
    assert one == other
    cuts = "data.cuts={type: file, train: /one/a.cuts, dev: /two/b.cuts}"
    assert described(load_config(act, [cuts])) == described(
        load_config(act, [cuts.replace("cuts,", f"cuts{ending},")])
    )


def test_published_marks_of_packed_text_stay_valid_for_the_same_text_unpacked() -> None:
    """Earlier versions made another mark where text was packed, as it was for docs/results/reading."""
    recipe = load_recipe(RESULTS.parents[1] / "recipes" / "reading" / "reproduce.yaml")
    chosen = systems(recipe, Chosen(RESULTS / "reading", only=("act-2", "act-4", "gru-cif-4")))
    members = [member for system in chosen for member in system.members.values()]
    logs = {member: kept_metrics(RESULTS / "reading", member) for member in members}
    marks = {m: json.loads(log.read_bytes().splitlines()[-1])["digest"] for m, log in logs.items()}
    assert len(marks) >= 3
    for member, mark in marks.items():
        assert mark != digest(described(member.load()))
        assert is_mark_of(mark, described(member.load()))
