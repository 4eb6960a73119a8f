"""Several processes make the updates of one, whatever rows each of them gets, and end together."""

import random
import signal
import socket
from collections.abc import Collection, Iterator
from itertools import count, product
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.program import write_config, write_corpus
from helpers import ACT, close, tiny_model
from safetensors.torch import load_file
from training.outcomes import DROPOUT, outcome, records
from training.ranks import Ended, Ranks, ranks
from wording import wording

from caesura.training.checkpoint import list_checkpoints, read_progress
from caesura.training.lock import hold

TINY = "training.batch_size=10", "training.keep_last=1", "training.learning_rate=1e-3"
READER = "reader: {type: bigru, embedding_dim: 8, size: 8}"
WEIGHTED, LAST = "pooling: weighted, rate: {target: 3.0}", "pooling: last, rate: {target: 3.0}"
KEYS = 12
TRANSFORMER = f"{{type: transformer, size: {KEYS}, heads: 2, feed_forward: 16, num_layers: 1, dropout: 0.0}}"
STOPS = (
    "training.validation_freq=10",
    "training.learning_rate=1e-9",
    "training.patience=1",
    "training.max_halvings=2",
)
SYSTEMS: dict[str, tuple[str, ...]] = {
    "char": ("char",),
    "act": ("act", "model.segmenter.rate={target: 3.0, by: pi}", "model.segmenter.tau=0"),
    "act-dec": ("act-act", "training.normalization=sentences"),
    "cif": ("char", f"model.segmenter={{{READER}, cutter: cif, {WEIGHTED}}}"),
    "threshold": ("char", f"model.segmenter={{{READER}, cutter: routing, {LAST}}}"),
    "transformer": ("char", f"model.encoder={TRANSFORMER}", f"model.decoder={TRANSFORMER}"),
    "risk": ("char", "training.risk_candidates=2", "training.risk_after=3"),
    "parts": ("act", "training.accumulate=2"),
    "stops": ("char", *STOPS),
}
DRAWN = (  # everything that draws: dropout of states and of symbols, cuts, what the decoder is fed
    f"model.segmenter={{{READER}, cutter: {{type: bernoulli, cuttings: 3}}, pooling: mean}}",
    "training.sampling=0.5",
    "training.src_token_dropout=0.1",
    *DROPOUT,
)


@pytest.fixture(scope="module")
def together() -> Iterator[Ranks]:
    with ranks() as program:
        yield program


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """41 sentences, in batches of 10: of the last batch of an epoch, all processes but one have no row."""
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, train=41, dev=5)
    return folder


def job(corpus: Path, folder: Path, system: str, *settings: str, **happens: Any) -> dict[str, Any]:
    """Ten updates and two validations; what `happens` in some ranks is for `ranks.py`."""
    name, *options = SYSTEMS[system]
    config = write_config(corpus / f"{name}.yaml", name)
    bounds = "training.updates=10", "training.validation_freq=50"
    settings = (*TINY, *bounds, *options, *settings)
    return {"config": str(config), "folder": str(folder), "settings": settings, **happens}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    [checkpoint] = list_checkpoints(folder / "checkpoints")
    return {name: value for name, value in load_file(checkpoint).items() if not name.startswith("random.")}


def near(value: Any, expected: Any) -> bool:
    """Whether two results are the same but for rounding."""
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(near(value[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(value) == len(expected) and all(map(near, value, expected))
    return (
        value == pytest.approx(expected, rel=1e-9, abs=1e-12)
        if isinstance(expected, float)
        else value == expected
    )


def check_equal(folder: Path, expected: Path) -> None:
    """The weights and moments of two runs are equal to 1e-12, and so is what they logged."""
    got = weights(folder)
    for name, value in weights(expected).items():
        # The softmax does not depend on the bias of keys: its gradient is rounding, which Adam makes larger.
        first = KEYS if name.endswith("cross.memory.bias") else None
        close(got[name].view(-1)[first:], value.view(-1)[first:], 1e-12, f"{folder}: {name}")
    assert near(outcome(folder)["metrics"], outcome(expected)["metrics"])
    assert near(outcome(folder)["progress"], outcome(expected)["progress"])


def check_world(together: Ranks, corpus: Path, folder: Path, systems: Collection[str], *sizes: int) -> None:
    """So many processes train systems as one does."""
    for number in (1, *sizes):
        together.train(number, *[job(corpus, folder / f"{system} by {number}", system) for system in systems])
    for size, system in product(sizes, systems):
        check_equal(folder / f"{system} by {size}", folder / f"{system} by 1")


def test_two_processes_make_the_updates_of_one(together: Ranks, corpus: Path, tmp_path: Path) -> None:
    check_world(together, corpus, tmp_path, ("act", "cif", "transformer", "stops"), 2)
    verdicts = [row["verdict"] for row in records(tmp_path / "stops by 2", "validation")]
    assert verdicts[-2:] == ["halve", "stop"], verdicts


def test_one_process_that_exchanges_numbers_makes_the_updates_of_one(
    together: Ranks, corpus: Path, tmp_path: Path
) -> None:
    together.train(1, job(corpus, tmp_path / "alone", "act"))
    together.train(1, job(corpus, tmp_path / "exchanging", "act"), exchanging=True)
    check_equal(tmp_path / "exchanging", tmp_path / "alone")


@pytest.mark.parametrize("size", [1, 2])
def test_so_do_gpus(together: Ranks, corpus: Path, tmp_path: Path, size: int) -> None:
    """Captured graphs and NCCL. Sums of a GPU run in any order."""
    if torch.cuda.device_count() < size:
        pytest.skip(f"needs {size} CUDA devices")
    options = "training.device=cuda", "training.updates=30", "training.validation_freq=300"
    for number, exchanging in ((1, False), (size, True)):
        run = job(corpus, tmp_path / f"{exchanging}", "act", *options)
        together.train(number, run, exchanging=exchanging, dtype="float32")
    losses = [[row["loss"] for row in records(tmp_path / name, "train")] for name in ("True", "False")]
    assert len(losses[0]) > 5
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_what_goes_wrong_in_one_process_changes_the_update_as_in_one(
    together: Ranks, corpus: Path, tmp_path: Path
) -> None:
    """A gradient that is not finite skips the update; what does not fit into memory is computed in pieces."""
    for size in (1, 2):
        where = str(size - 1)
        jobs = [
            job(corpus, tmp_path / f"poisoned by {size}", "char", poisoned={where: 3}),
            job(corpus, tmp_path / f"full by {size}", "act", full={where: 3}),
        ]
        together.train(size, *jobs)
    assert len(records(tmp_path / "poisoned by 2", "skipped")) == 1
    check_equal(tmp_path / "poisoned by 2", tmp_path / "poisoned by 1")
    check_equal(tmp_path / "full by 2", tmp_path / "full by 1")


@pytest.fixture(scope="module")
def undisturbed(together: Ranks, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two processes that draw."""
    folder = tmp_path_factory.mktemp("undisturbed")
    together.train(2, job(corpus, folder, "char", *DRAWN))
    return folder


def test_a_signal_to_one_process_stops_all_and_any_number_goes_on(
    together: Ranks, corpus: Path, undisturbed: Path, tmp_path: Path
) -> None:
    first = job(corpus, tmp_path / "two, then one", "char", stopped={"1": 6})
    second = job(corpus, tmp_path / "one, then two", "char", stopped={"0": 4})
    drawn = job(corpus, tmp_path / "two, then two", "char", *DRAWN, stopped={"0": 7})
    together.train(1, second, job(corpus, tmp_path / "one", "char"))
    together.train(2, first, second, drawn)
    for run, update in ((first, 6), (drawn, 7)):
        [checkpoint] = list_checkpoints(Path(run["folder"]) / "checkpoints")
        assert read_progress(checkpoint).update == update
    del drawn["stopped"]
    together.train(2, drawn | {"validating": {"1": True}}, drawn | {"time_limit": {"0": 1e-9}})
    assert len(records(Path(drawn["folder"]), "validation")) == 1, "the second was interrupted"
    together.train(2, drawn)
    together.train(1, first)
    assert outcome(Path(drawn["folder"])) == outcome(undisturbed)
    for run in (first, second):
        check_equal(Path(run["folder"]), tmp_path / "one")


def test_a_limit_of_one_process_ends_all(together: Ranks, corpus: Path, tmp_path: Path) -> None:
    run = job(corpus, tmp_path / "run", "char", stopped={"0": 3})
    together.train(2, run, run | {"time_limit": {"1": 1e-9}}, run | {"budget": {"1": 1e-9}})
    [checkpoint] = list_checkpoints(tmp_path / "run" / "checkpoints")
    assert read_progress(checkpoint).update == 3
    assert [row["update"] for row in records(tmp_path / "run", "validation")] == [3], "off the clock"


def killed(corpus: Path, folder: Path, **happens: Any) -> dict[str, Any]:
    """A run that draws, with a checkpoint after every update."""
    return job(corpus, folder, "char", "training.checkpoint_minutes=1e-9", *DRAWN, **happens)


def test_when_one_process_dies_all_end_with_one_sentence_and_the_next_start_goes_on(
    together: Ranks, corpus: Path, undisturbed: Path, tmp_path: Path
) -> None:
    ended = together.start(2, killed(corpus, tmp_path / "run", killed={"1": 6}))
    assert ended.statuses == [1, -signal.SIGKILL]
    assert ended.apart < 5
    assert wording(ended.printed).startswith("caesura: another process")
    assert ended.printed.count("\n") == 1
    together.train(2, killed(corpus, tmp_path / "run"))
    assert outcome(tmp_path / "run") == outcome(undisturbed)


def check_ended_at_once(ended: Ended) -> None:
    """With one sentence, of all together."""
    assert ended.apart < 5
    assert ended.printed.startswith("caesura: another process")
    assert ended.printed.count("\n") == 1


def test_what_waits_for_a_dead_process_as_for_a_gpu_ends_too(
    together: Ranks, corpus: Path, tmp_path: Path
) -> None:
    """Process 2 is not tied to process 1, and waits for process 0."""
    ended = together.start(3, killed(corpus, tmp_path, killed={"1": 3}, stuck={"0": 3, "2": 3}))
    assert ended.statuses == [1, -signal.SIGKILL, 1], ended.printed
    check_ended_at_once(ended)


def test_what_cannot_end_after_the_death_of_another_is_ended(
    together: Ranks, corpus: Path, tmp_path: Path
) -> None:
    ended = together.start(2, killed(corpus, tmp_path, killed={"1": 3}, hanging={"0": True}))
    assert ended.statuses == [1, -signal.SIGKILL], ended.printed
    check_ended_at_once(ended)


def test_a_farewell_that_gets_lost_does_not_undo_a_training(
    together: Ranks, corpus: Path, tmp_path: Path
) -> None:
    """As where a firewall has dropped the connection, which was silent for hours."""
    ended = together.start(2, job(corpus, tmp_path, "char", unheard={"1": True}))
    assert (ended.statuses, ended.printed) == ([0, 0], "")


def kill_at_random(together: Ranks, corpus: Path, folder: Path, size: int, kills: int, seed: int) -> None:
    """Kill a process at random moments, run upon run, each of which ends as one that is not disturbed."""
    rng, done = random.Random(seed), 0
    whole = together.start(size, killed(corpus, folder / "whole"))
    assert whole.statuses == [0] * size
    for number in count():
        run = killed(corpus, folder / str(number))
        while done < kills:
            rank = rng.randrange(size)
            ended = together.start(size, run, kill=[rank, rng.uniform(0, 1.1 * whole.seconds)])
            if not any(status for r, status in enumerate(ended.statuses) if r != rank):
                break  # it was over
            done += 1
            assert ended.statuses == [-signal.SIGKILL if r == rank else 1 for r in range(size)], ended.printed
            assert ended.apart < 10
            assert ended.printed.count("\n") <= 1, ended.printed
        else:
            together.train(size, run)
        assert outcome(folder / str(number)) == outcome(folder / "whole")
        if done == kills:
            return


@pytest.mark.slow
def test_two_and_four_processes_make_the_updates_of_one_and_are_killed(
    together: Ranks, corpus: Path, tmp_path: Path
) -> None:
    """Of the last batch of an epoch, one of two and three of four have no row."""
    check_world(together, corpus, tmp_path, SYSTEMS, 2, 4)
    kill_at_random(together, corpus, tmp_path, 4, kills=3, seed=1)


@pytest.mark.soak
def test_killed_at_twenty_random_moments(together: Ranks, corpus: Path, tmp_path: Path) -> None:
    kill_at_random(together, corpus, tmp_path, 2, kills=20, seed=2)


def test_a_folder_that_another_training_holds_or_another_machine_lacks_is_refused_once(
    together: Ranks, corpus: Path, tmp_path: Path
) -> None:
    run = job(corpus, tmp_path / "run", "char")
    with hold(tmp_path / "run", print):
        ended = together.start(2, run)
    assert ended.statuses == [2, 1]
    assert "is training here" in ended.printed
    assert ended.printed.count("\n") == 1
    ended = together.start(2, run | {"elsewhere": {"1": str(tmp_path / "elsewhere")}})
    assert ended.statuses == [2, 1]
    assert f"{tmp_path / 'run'}: process 1 on " in wording(ended.printed, socket.gethostname())
    assert ended.printed.count("\n") == 1


def test_translations_of_a_share_each_are_those_of_one_process(together: Ranks, tmp_path: Path) -> None:
    """With other lengths than the order, empty lines among them, and batches that do not come out even."""
    tiny_model(ACT).save_pretrained(tmp_path / "model")
    rng = random.Random(1)
    lines = ["".join(rng.choices("abcdef", k=rng.choice([0, 1, 3, 9]))) for _ in range(27)]
    request = {"folder": str(tmp_path / "model"), "lines": lines}
    one, *others = (together.train(size, request) for size in (1, 2, 3))
    assert len({*one.splitlines()}) > 10
    assert others == [one, one]
