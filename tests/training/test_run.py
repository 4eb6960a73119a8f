"""What a run measures and says before it starts."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training.outcomes import Listener, configured
from wording import refuses

from caesura.errors import InputError
from caesura.training.loop import train
from caesura.training.start import _going_on, output_ratio


@given(st.integers(0, 300), st.integers(0, 900), st.integers(1, 60))
def test_the_target_of_a_single_pair_fits_into_the_measured_limit(
    source: int, target: int, extra: int
) -> None:
    ratio = output_ratio(np.array([[source, target]]), extra)
    assert ratio >= 1
    assert round(ratio * (source + 1), 6) + extra >= target + 1
    assert ratio == 1 or round((ratio - 0.01) * (source + 1), 6) + extra <= target + 1


def test_the_ratio_is_the_least_that_holds_all_but_a_thousandth() -> None:
    lengths = np.array([[9, 9]] * 5000 + [[9, 129]] * 10 + [[9, 899]] * 2)
    assert output_ratio(lengths, extra=50) == pytest.approx((130 - 50) / 10)
    assert output_ratio(lengths[:5000], extra=50) == 1


def test_without_tensorboard_its_extra_is_named(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    config = configured(corpus, "char", "training.tensorboard=true")
    with refuses(InputError, "training.tensorboard ", "'.[tensorboard]'"):
        train(config, tmp_path / "out", Listener(), time_limit=0)


@pytest.mark.parametrize("part", ["segmenter", "decoder"])
def test_a_tau_below_0_is_allowed_and_noted(corpus: Path, tmp_path: Path, part: str) -> None:
    for name, tau in (("below", -0.5), ("not", 0.0)):
        config = configured(corpus, "act-act", f"model.{part}.tau={tau}")
        train(config, tmp_path / name, listener := Listener(), time_limit=0)
        noted = [line for line in listener.messages if "tau" in line]
        expected = f"model.{part}.tau is -0.5: below 0 the penalty rewards longer segments"
        assert noted == ([expected] if tau < 0 else [])


@pytest.mark.parametrize(("bias", "little"), [(9, True), (-1, False)])
def test_a_start_that_leaves_the_halting_unit_little_to_learn_from_is_noted(
    corpus: Path, tmp_path: Path, bias: float, little: bool
) -> None:
    config = configured(corpus, "act", f"model.segmenter.halting_bias={bias}")
    train(config, tmp_path / "run", listener := Listener(), time_limit=0)
    assert any("a lower model.segmenter.halting_bias" in line for line in listener.messages) == little


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_bfloat16_on_a_cpu_is_noted(corpus: Path, tmp_path: Path, precision: str) -> None:
    config = configured(corpus, "word", f"training.precision={precision}", "training.device=cpu")
    train(config, tmp_path / "run", listener := Listener(), time_limit=0)
    assert any("slow on a CPU" in line for line in listener.messages) == (precision == "bfloat16")


def test_a_run_takes_the_threads_that_are_free_and_goes_on_with_as_many(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(corpus, "word", "training.threads=null", "training.device=cpu")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)}, raising=False)
    taken = [8]
    monkeypatch.setattr(torch, "get_num_threads", lambda: taken[-1])
    monkeypatch.setattr(torch, "set_num_threads", taken.append)
    for load, threads in ((4.1, 3), (0.0, 3), (60.0, 3)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        taken.append(8)  # a new process
        train(config, tmp_path / "run", listener := Listener(), time_limit=0)
        assert taken[-1] == threads
        assert any("--threads 8" in line for line in listener.messages) == (load == 4.1)
    train(
        config.model_copy(update={"training": config.training.model_copy(update={"threads": 2})}),
        tmp_path / "run",
        Listener(),
        time_limit=0,
    )
    assert taken[-1] == 2


def test_a_figure_that_an_older_version_summed_up_otherwise_begins_anew() -> None:
    names = ("loss", "sentences", "penalty", "penalty of", "live", "live of")
    old = {"loss": 3.0, "sentences": 2.0, "penalty": 9.0}  # without what it is divided by
    assert _going_on(old, names) == [3.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    new = dict(zip(names, map(float, range(6)), strict=True))
    assert _going_on(new, names) == [*new.values()]
