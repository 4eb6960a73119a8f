"""Folders change while they are shown: new weights, none yet, damaged, gone; and trainings are watched."""

import fcntl
import gc
import json
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from explorer.asking import answer, ask, client, serving
from explorer.kinds import CIF, READER, SHORT
from helpers import RECURRENT, make_config, tiny_model, vocabulary
from wording import wording

from caesura.analysis.explain import explain
from caesura.config import EntropyCuts
from caesura.data.entropy import NgramCuts
from caesura.data.held import LOCK
from caesura.explorer import shelf
from caesura.explorer.refused import Refused
from caesura.explorer.server import Explorer
from caesura.explorer.shelf import short_names
from caesura.inference import Translator
from caesura.model_folder import WEIGHTS
from caesura.training.checkpoint import CHECKPOINTS, Progress, save_checkpoint, snapshot
from caesura.training.journal import METRICS

BODY: dict[str, Any] = {"model": "m", "text": "abcdefgh"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder that a test may change."""
    save(tmp_path / "m")
    return tmp_path / "m"


@pytest.fixture
def shown(folder: Path) -> Iterator[Explorer]:
    """A server of it."""
    with serving(folder) as explorer:
        yield explorer


def save(folder: Path, seed: int = 0) -> None:
    """A model, other weights per seed."""
    tiny_model(CIF, seed=seed, testing=SHORT).save_pretrained(folder)


def log(folder: Path, *records: dict[str, Any]) -> None:
    """Write a log, whose last line may be cut off."""
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / METRICS).write_text(lines + '{"kind": "tr', encoding="utf-8")


def test_new_weights_are_read(shown: Explorer, folder: Path) -> None:
    before = answer(shown, "/explain", **BODY, beam=1)
    save(folder, seed=1)
    after = answer(shown, "/explain", **BODY, beam=1)
    assert after["version"] != before["version"]
    assert after["log_probability"] != before["log_probability"]
    assert client(shown).get("/api/models").json()["models"][0]["version"] == after["version"]


def test_old_models_are_not_kept_by_any_thread(shown: Explorer, folder: Path) -> None:
    shelf, both = shown.shelf, threading.Barrier(2)

    def borrowed(_: int) -> "weakref.ref[Translator]":
        with shelf.borrow("m") as loaded:
            both.wait(30)
            return weakref.ref(loaded.model)

    with ThreadPoolExecutor(2) as threads:
        old = [weakref.ref(shelf.slot("m").current().model), *threads.map(borrowed, range(2))]
        assert len({id(model()) for model in old}) == 3
        save(folder, seed=1)
        with shelf.borrow("m") as loaded:  # one thread alone sees the new weights
            assert loaded.model
        gc.collect()
        assert [model() for model in old] == [None] * 3


def test_one_thread_reads_new_weights_while_others_use_the_old_ones(
    shown: Explorer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot, reading, go = shown.shelf.slot("m"), threading.Event(), threading.Event()
    before, read = slot.current(), Translator.from_pretrained

    def held(*arguments: Any, **options: Any) -> Translator:
        reading.set()
        assert go.wait(30)
        return read(*arguments, **options)

    monkeypatch.setattr("caesura.explorer.shelf.Translator.from_pretrained", held)
    save(folder, seed=1)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(slot.current)
        try:
            assert reading.wait(30)
            assert threads.submit(slot.current).result(30) is before
            slot.latest = None  # as before the first weights of a training
            with pytest.raises(Refused) as refused:
                threads.submit(slot.current).result(30)
            assert refused.value.status == 503
            wording(str(refused.value))
        finally:
            go.set()
        assert first.result(30).version != before.version
        assert slot.current() is first.result()


def test_a_deleted_folder_is_said(shown: Explorer, folder: Path) -> None:
    shutil.rmtree(folder)
    wording(ask(shown, "/explain", 410, **BODY)["message"])
    wording(ask(shown, "/training", 410, model="m")["message"])
    [model] = client(shown).get("/api/models").json()["models"]
    assert model["problem"]
    assert model["version"] is None
    assert model["rules"] == []
    save(folder)
    assert answer(shown, "/segment", **BODY)["pieces"]


def test_deleted_weights_are_said(shown: Explorer, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    wording(ask(shown, "/explain", 410, **BODY)["message"])


def test_damaged_weights_are_said_and_tried_again(
    shown: Explorer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("caesura.explorer.shelf.PAUSE", 600.0)
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    wording(ask(shown, "/explain", 503, **BODY)["message"], folder)
    with monkeypatch.context() as patched:
        patched.setattr("caesura.explorer.shelf.Translator.from_pretrained", None)  # is not called again
        ask(shown, "/explain", 503, **BODY)
    monkeypatch.setattr("caesura.explorer.shelf.PAUSE", 0.0)
    (folder / WEIGHTS).write_bytes(whole)
    assert answer(shown, "/segment", **BODY)["pieces"]


def test_a_training_is_watched_from_before_its_first_weights(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    log(folder, {"kind": "start", "update": 0, "segment_length": 2.0})
    with serving(folder) as explorer:
        wording(ask(explorer, "/explain", 503, **BODY)["message"])
        [model] = client(explorer).get("/api/models").json()["models"]
        assert model["problem"]
        assert model["history"]
        reply = answer(explorer, "/training", model="m")
        assert (reply["version"], reply["update"], reply["curves"]) == (None, 0, {})
        save(folder)
        examples = [{"source": "ab"}, {"source": ""}, {"source": "x" * 200}, {"source": 7}]
        log(
            folder,
            {"kind": "start", "update": 0, "segment_length": 2.0},
            {"kind": "train", "update": 5, "loss": 3.5, "epoch": 1, "good": True},
            {"kind": "validation", "update": 10, "segment_length": 1.5, "bleu": 3.0, "examples": examples},
            {"kind": "train", "update": 10, "loss": 2.5, "note": "text", "odd": float("nan")},
        )
        reply = answer(explorer, "/training", model="m")
        assert reply["version"] == answer(explorer, "/segment", **BODY)["version"]
        assert reply["update"] == 10
        assert reply["curves"] == {"segment_length": [[0, 2.0], [10, 1.5]], "loss": [[5, 3.5], [10, 2.5]]}
        [model] = client(explorer).get("/api/models").json()["models"]
        assert model["examples"] == ["ab"]


def test_a_running_training_is_known_by_its_lock(shown: Explorer, folder: Path) -> None:
    def running() -> list[bool]:
        [model] = client(shown).get("/api/models").json()["models"]
        return [model["running"], answer(shown, "/training", model="m")["running"]]

    assert running() == [False, False]
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    assert running() == [True, True]
    os.close(file)
    assert running() == [False, False]


def test_a_running_training_answers_from_its_last_checkpoint(shown: Explorer, folder: Path) -> None:
    seen = []

    def look() -> tuple[Any, float]:
        reply, training = answer(shown, "/explain", **BODY, beam=1), answer(shown, "/training", model="m")
        assert reply["version"] == training["version"]
        seen.append(reply["version"])
        return training["shown"], reply["log_probability"]

    best = look()
    models = {update: tiny_model(CIF, seed=update, testing=SHORT) for update in (7, 12)}
    for update, model in models.items():
        state = snapshot(model, torch.optim.Adam(model.parameters()), Progress(update=update))
        save_checkpoint(folder / CHECKPOINTS, state, keep=2)
    wanted = {
        update: explain(model, BODY["text"], beam=1).log_probability for update, model in models.items()
    }
    assert look() == best  # nothing runs
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert look() == (12, pytest.approx(wanted[12]))
        (folder / CHECKPOINTS / "000000012.safetensors").unlink()
        assert look() == (7, pytest.approx(wanted[7]))
    assert look() == best
    assert seen[0] == seen[1] == seen[4]
    assert len({*seen}) == 3


def test_a_checkpoint_that_goes_while_it_is_read_gives_way_to_the_next(
    shown: Explorer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(update: int) -> Path:
        model = tiny_model(CIF, seed=update, testing=SHORT)
        state = snapshot(model, torch.optim.Adam(model.parameters()), Progress(update=update))
        return save_checkpoint(folder / CHECKPOINTS, state, keep=2)

    take = shelf._take_weights

    def late(model: Translator, path: Path) -> None:
        if path.stem.endswith("7"):
            path.unlink()
            written(12)
        take(model, path)

    written(7)
    monkeypatch.setattr(shelf, "_take_weights", late)
    with (folder / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert answer(shown, "/training", model="m")["shown"] == 12


def test_long_curves_are_thinned_and_keep_their_end(shown: Explorer, folder: Path) -> None:
    log(folder, *({"kind": "train", "update": n, "loss": float(n)} for n in range(1, 1002)))
    curve = answer(shown, "/training", model="m")["curves"]["loss"]
    assert 200 < len(curve) <= 400
    assert curve[-1] == [1001, 1001.0]
    assert curve == sorted(curve)


@pytest.fixture
def by_entropy(tmp_path: Path) -> Path:
    """A model that is cut by the entropy of n-grams."""
    cuts = {"type": "entropy", "target": 2.0, "order": 2}
    side = {"lang": "xx", "level": "char"}
    data = {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side, "cuts": cuts}
    given = {"type": "parts", "reader": READER, "cutter": "given", "pooling": "mean", "output_dim": 5}
    config = make_config(given, {"hidden_size": 3}, RECURRENT, data=data, testing=SHORT)
    lines = ["abab abcd", "abce fgh", "abcdefgh"] * 3
    learnt = NgramCuts.learn(lines, EntropyCuts(type="entropy", target=2.0, order=2))
    Translator.build(config, vocabulary(12), vocabulary(9), learnt).save_pretrained(tmp_path / "entropy")
    return tmp_path / "entropy"


def bounds_of(reply: dict[str, Any]) -> list[int]:
    """Where an answer cuts."""
    return [len("".join(reply["pieces"][:i])) for i in range(1, len(reply["pieces"]))]


def test_a_model_that_cuts_by_entropy_lends_its_cuts(folder: Path, by_entropy: Path) -> None:
    with serving(folder) as alone:
        assert "entropy" not in client(alone).get("/api/models").json()["models"][0]["rules"]
    with serving(folder, by_entropy) as explorer:
        models = client(explorer).get("/api/models").json()["models"]
        assert all("entropy" in model["rules"] for model in models)
        cuts = explorer.shelf.slot("entropy").current().model.cuts
        assert isinstance(cuts, NgramCuts)
        expected = cuts.offsets(BODY["text"])
        assert expected
        assert bounds_of(answer(explorer, "/segment", **BODY, rule={"name": "entropy"})) == expected
        body = {**BODY, "model": "entropy"}
        reply = answer(explorer, "/segment", **body)
        assert bounds_of(reply) == expected
        assert [gap["offset"] for gap in reply["gaps"] if gap["score"] > 0.5] == expected
        bits = cuts.scores(BODY["text"]) - cuts.threshold
        odds = [gap["score"] / (1 - gap["score"]) for gap in reply["gaps"]]
        assert odds == pytest.approx([*(2 ** bits[1:])])
        assert answer(explorer, "/explain", **body)["segmentation"]["gaps"] == reply["gaps"]
        assert answer(explorer, "/flips", **body)["changes"]


def test_cuts_by_entropy_have_a_rate_too(by_entropy: Path) -> None:
    with serving(by_entropy) as explorer:
        [model] = client(explorer).get("/api/models").json()["models"]
        assert model["live_rate"] == {"target": 2.0}
        body = {**BODY, "model": "entropy"}
        counts = [len(answer(explorer, "/segment", **body, rate=rate)["pieces"]) for rate in (1.0, 2.0, 4.0)]
        assert counts == sorted(counts, reverse=True)
        assert counts[0] == len(BODY["text"])
        assert counts[0] > counts[-1]
        assert counts[1] == len(answer(explorer, "/segment", **body)["pieces"])
        assert ask(explorer, "/segment", 422, **body, rate=100.0)["field"] == "rate"


@pytest.mark.parametrize(
    ("cutter", "by"), [("act", "quantile"), ("routing", "quantile"), ("bernoulli", "logits")]
)
def test_a_threshold_moves_to_the_rate_of_the_text(tmp_path: Path, cutter: str, by: str) -> None:
    rate = {"target": 2.0, "by": by}
    parts = {"type": "parts", "reader": READER, "cutter": cutter, "pooling": "weighted", "rate": rate}
    model = tiny_model({**parts, "output_dim": 5}, testing=SHORT)
    model.save_pretrained(tmp_path / "m")
    with serving(tmp_path / "m") as explorer:
        [described] = client(explorer).get("/api/models").json()["models"]
        assert described["live_rate"] == {"target": 2.0}
        before = answer(explorer, "/segment", **BODY)
        segments = {
            rate: answer(explorer, "/segment", **BODY, rate=rate)["pieces"] for rate in (1.0, 2.0, 4.0)
        }
        counts = [len(pieces) for pieces in segments.values()]
        assert counts == [8, 4, 2] or (cutter == "act" and counts[0] == 8 and counts == sorted(counts)[::-1])
        assert answer(explorer, "/segment", **BODY) == before
        assert answer(explorer, "/flips", **BODY, rate=4.0)["changes"]
        assert answer(explorer, "/translate", model="m", texts=["", BODY["text"]], rate=2.0)
        assert answer(explorer, "/segment", model="m", text="", rate=2.0)["pieces"] == []


def test_rates_that_hardly_differ_share_a_threshold(by_entropy: Path) -> None:
    with serving(by_entropy) as explorer:
        cuts = explorer.shelf.slot("entropy").current().model.cuts
        assert isinstance(cuts, NgramCuts)
        for rate in (2.5, 2.501, 2.4999):
            answer(explorer, "/segment", **{**BODY, "model": "entropy"}, rate=rate)
        assert [*cuts._thresholds] == [2.5]


def test_names_are_as_short_as_they_can_be() -> None:
    def names(*paths: str) -> list[str]:
        return short_names([Path(path) for path in paths])

    assert names("/a/b/c") == ["c"]
    assert names("/a/x/c", "/a/y/d") == ["c", "d"]
    assert names("/a/x/c", "/a/y/c") == ["x/c", "y/c"]
    assert names(os.fsdecode(b"/a/\xff")) == ["\\xff"]
