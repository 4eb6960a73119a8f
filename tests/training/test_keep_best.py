"""The weights of the best validations are kept for averaging, whatever disturbs the run."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training.outcomes import check_resumed, configured, records, run, stopped

from caesura.data.tensors import load_tensors, read_facts
from caesura.training.checkpoint import Progress, list_checkpoints, ranked, read_progress

pytestmark = pytest.mark.usefixtures("frequent_log")
OFTEN = ("training.validation_freq=15", "training.keep_last=9")
SCORES = st.tuples(st.sampled_from([0.0, 1.5, 20.0]), st.sampled_from([0.0, 9.0, 30.0]))


@given(st.lists(SCORES, min_size=1, max_size=8), st.integers(0, 4))
def test_one_by_one_the_best_are_found_as_at_once(scores: list[tuple[float, float]], keep: int) -> None:
    best: list[dict[str, float]] = []
    for update, (bleu, chrf) in enumerate(scores):
        best = ranked(best, update, bleu, chrf, keep)
        rows = sorted(((*pair, i) for i, pair in enumerate(scores[: update + 1])), reverse=True)[:keep]
        assert [(row["bleu"], row["chrf"], row["update"]) for row in best] == rows


def kept(folder: Path) -> list[int]:
    return [int(path.stem) for path in list_checkpoints(folder / "best")]


def test_weights_of_the_best_validations_are_those_of_their_checkpoints(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus, "word", *OFTEN, "training.keep_best=3"), tmp_path)
    validations = records(tmp_path, "validation")
    assert len(validations) > 4
    scores = sorted(((row["bleu"], row["chrf"], row["update"]) for row in validations), reverse=True)
    assert kept(tmp_path) == sorted(update for *_, update in scores[:3])
    for path in list_checkpoints(tmp_path / "best"):
        weights, facts = load_tensors(path)
        whole, state = load_tensors(tmp_path / "checkpoints" / path.name)
        models = {name.removeprefix("model."): v for name, v in whole.items() if name.startswith("model.")}
        assert weights.keys() == models.keys()
        assert all(value.equal(models[name]) for name, value in weights.items())
        assert (facts["bleu"], facts["chrf"], facts["update"]) in scores[:3]
        assert facts["config"] == state["config"]


def test_a_stopped_run_keeps_the_same_weights(corpus: Path, tmp_path: Path) -> None:
    config = configured(corpus, "word", "training.validation_freq=25", "training.keep_best=2")
    assert len(kept(check_resumed(config, tmp_path, 3, 6, 7, 11))) == 2


def test_the_number_may_be_changed_while_a_run_goes_on(corpus: Path, tmp_path: Path) -> None:
    stopped(configured(corpus, "word", *OFTEN), tmp_path, 5)
    assert kept(tmp_path) == []
    stopped(configured(corpus, "word", *OFTEN, "training.keep_best=9"), tmp_path, 11)
    some = kept(tmp_path)
    assert len(some) == len([row for row in records(tmp_path, "validation") if row["update"] > 5]) > 2
    run(configured(corpus, "word", *OFTEN, "training.keep_best=1"), tmp_path)
    [best] = kept(tmp_path)
    assert read_facts(tmp_path / "best" / f"{best:09d}.safetensors")["update"] == best
    assert [row["update"] for row in read_progress(list_checkpoints(tmp_path / "checkpoints")[-1]).best] == [
        best
    ]


def test_by_default_none_are_kept(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus), tmp_path)
    assert not (tmp_path / "best").exists()
    assert Progress().best == []
