"""Moves of cuts: losses as `score` has them, a kept rate, and a loss that never rises."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from analysis.test_flips import EVERY, FIXED, NAMES
from cli.program import Done, caesura, write_config, write_corpus
from helpers import LOOKUP, tiny_model
from wording import refuses, wording

from caesura.analysis.flips import all_flips
from caesura.analysis.moves import better_cuts
from caesura.config import load_config
from caesura.inference import Translator
from caesura.training.loop import train
from caesura.training.run import Silent

SOURCES, TARGETS = ["abcdefgh", "hgabba", "ab", "c", "ddcca"], ["abcd", "bbca", "", "e", "cab"]
DRAWN = {**FIXED, "cutter": {"type": "bernoulli", "gradient": "disarm"}}
every_segmenter = pytest.mark.parametrize("segmenter", [*EVERY, DRAWN], ids=[*NAMES, "bernoulli"])


def loss(model: Translator, source: str, target: str, cuts: Sequence[int]) -> float:
    """The loss by `score` with cuts after these symbols."""
    [log_prob] = model.score([source], [target], cuts=[[at + 1 for at in cuts]])
    return -log_prob / (len(target) + 1)


@every_segmenter
def test_moves_gain_at_a_kept_rate_and_their_losses_are_those_of_score(segmenter: dict) -> None:
    model = tiny_model(segmenter)
    moved, own = better_cuts(model, SOURCES, TARGETS, 9), all_flips(model, SOURCES, TARGETS, 0)
    for source, target, one, flips in zip(SOURCES, TARGETS, moved, own, strict=True):
        assert one.own == [at for at, cut in enumerate(flips.cuts) if cut]
        assert one.before == pytest.approx(loss(model, source, target, one.own), abs=1e-12)
        assert one.after == pytest.approx(loss(model, source, target, one.cuts), abs=1e-12)
        assert len(one.cuts) == len(one.own)
        assert one.moves == 0 if one.cuts == one.own else one.after < one.before - one.moves * 1e-6


def test_each_round_makes_the_best_of_the_moves_that_are_tried() -> None:
    model = tiny_model(EVERY[1])
    rounds = [better_cuts(model, SOURCES[:1], TARGETS[:1], n)[0] for n in range(5)]
    assert rounds[0].cuts == rounds[0].own
    assert rounds[0].after == rounds[0].before
    assert rounds[1].moves == 1
    for before, after in pairwise(rounds):
        places = range(len(SOURCES[0]) - 1)
        moves = [
            sorted({*before.cuts} - {a} | {b}) for a in before.cuts for b in places if b not in before.cuts
        ]
        losses = {tuple(cuts): loss(model, SOURCES[0], TARGETS[0], cuts) for cuts in moves}
        if after.moves == before.moves:
            assert after.cuts == before.cuts
            continue
        assert losses[tuple(after.cuts)] == pytest.approx(after.after, abs=1e-12)
        shifts = [
            cuts for cuts in losses if any(abs(a - b) == 1 for a in {*before.cuts} - {*cuts} for b in cuts)
        ]
        single = all_flips(model, SOURCES[:1], TARGETS[:1], 0, cuts=[[at + 1 for at in before.cuts]])[
            0
        ].flipped
        off = min(before.cuts, key=lambda at: single[at])
        on = min(set(places) - {*before.cuts}, key=lambda at: single[at])
        tried = [losses[tuple(sorted({*before.cuts} - {off} | {on}))], *(losses[cuts] for cuts in shifts)]
        assert after.after <= min(tried) + 1e-12


@every_segmenter
def test_sentences_move_alone_as_in_company(segmenter: dict) -> None:
    model = tiny_model(segmenter)
    together = better_cuts(model, SOURCES, TARGETS)
    alone = [better_cuts(model, [a], [b])[0] for a, b in zip(SOURCES, TARGETS, strict=True)]
    assert [(one.cuts, one.moves) for one in together] == [(one.cuts, one.moves) for one in alone]
    assert [one.after for one in together] == pytest.approx([one.after for one in alone], abs=1e-12)


def test_a_segmenter_without_cuts_is_refused() -> None:
    with refuses(ValueError, "LookupSegmenter "):
        better_cuts(tiny_model(LOOKUP), SOURCES, TARGETS)


CIF = (
    "model.segmenter={reader: {type: bigru, embedding_dim: 6, size: 8}, output_dim: 6, cutter: cif, "
    "pooling: weighted, rate: {target: 3.0}}"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("improve")
    write_corpus(folder, train=45, dev=5)
    config = load_config(write_config(folder / "cif.yaml", "char"), (CIF, "training.updates=20"))
    train(config, folder / "model", Silent())
    return folder


def improved(folder: Path, name: str, *options: object) -> Done:
    return caesura("improve", folder / "model", "--out", folder / name, "--threads", 1, *options)


def test_a_file_of_better_cuts_goes_on_and_teaches_another_model(trained: Path) -> None:
    whole = improved(trained, "whole.cuts", "--sentences", 30)
    assert whole.status == 0
    wording(whole.out.partition(";")[0].partition(",")[0].replace(str(trained), "TMP"))
    content = (trained / "whole.cuts").read_text()
    lines = content.splitlines()
    assert (len(lines), lines.count("?")) == (45, 15)
    some = improved(trained, "parts.cuts", "--sentences", 10)
    assert some.status == 0
    assert improved(trained, "parts.cuts", "--sentences", 30).status == 0  # begins with the ten
    assert (trained / "parts.cuts").read_text() == content
    model = Translator.from_pretrained(trained / "model")
    pairs = [(trained / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("de", "en")]
    for row in map(json.loads, (trained / "whole.cuts.jsonl").read_text().splitlines()[1:]):
        source, target = (side[row["line"]] for side in pairs)
        assert lines[row["line"]] == " ".join(map(str, row["offsets"]))
        [log_prob] = model.score([source], [target], cuts=[row["offsets"]])
        assert row["after"] == pytest.approx(-log_prob / (len(target) + 1), abs=1e-5)
        assert row["after"] <= row["before"]
        assert len(row["offsets"]) + 1 == round(len(source) / 3)
    cuts = f"data.cuts={{type: file, train: {trained / 'whole.cuts'}}}"
    pupil = load_config(
        trained / "cif.yaml", (CIF, cuts, "model.segmenter.imitation=5.0", "training.updates=5")
    )
    train(pupil, trained / "pupil", Silent())
    assert Translator.from_pretrained(trained / "pupil").segment(["neun eins"])


def test_a_time_limit_leaves_what_is_done_and_the_same_command_goes_on(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caesura.analysis.teacher.TOGETHER", 8)
    options = ("--sentences", 20, "--rounds", 1)
    ended = improved(trained, "limit.cuts", *options, "--time-limit", "0.0001s")
    assert ended.status == 0
    wording(ended.err.splitlines()[-1])
    assert (trained / "limit.cuts").read_text().count("?") == 45 - 8
    assert improved(trained, "limit.cuts", *options).status == 0
    assert improved(trained, "once.cuts", *options).status == 0
    assert (trained / "limit.cuts").read_bytes() == (trained / "once.cuts").read_bytes()


def test_what_cannot_be_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    assert improved(trained, "again.cuts", "--sentences", 2).status == 0
    (trained / "odd.cuts.jsonl").write_text("[1]\nodd\n")
    for name, options in (
        ("again.cuts", ["--seed", 2]),
        ("odd.cuts", []),
        ("a.cuts", ["--src", tmp_path / "none", "--trg", tmp_path / "none"]),
        ("a.cuts", ["--trg", tmp_path / "none"]),
        ("none/a.cuts", []),
        ("a.cuts", ["--time-limit", "soon"]),
    ):
        done = improved(trained, name, "--sentences", 2, *options)
        assert (done.status, done.out) == (2, "")
        message = done.err.splitlines()[-1]
        wording(message.replace(str(trained), "TMP").replace(str(tmp_path), "TMP"))
