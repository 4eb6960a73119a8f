"""Sweeps on clusters: on a stand-in and, in the soak, on SLURM itself with this machine as its only node.

SLURM's daemons come from Debian's packages (`apt-get install --no-install-recommends slurmctld slurmd
slurm-client munge`) and need root. Where they are missing or do not run, the test is skipped and says so.
"""

import json
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli.program import caesura, command
from experiments.clusters import Slurm, StandIn
from experiments.fleets import Heard, wait_for
from experiments.sweeps import request_of

from caesura.data.tensors import load_tensors
from caesura.experiments import slurm
from caesura.experiments.fleet import Limits
from caesura.experiments.outcome import Member
from caesura.experiments.slurm import Cluster, Jobs
from caesura.experiments.sweep import run_sweep
from caesura.experiments.sweep_results import load
from caesura.model_folder import WEIGHTS

pytestmark = pytest.mark.usefixtures("no_ignored_signals")

LONG = ("training.updates=500", "training.validation_freq=500")  # more than are made before a signal comes


@pytest.fixture(
    params=[
        pytest.param(StandIn, marks=pytest.mark.slow),
        pytest.param(Slurm, marks=pytest.mark.soak),
    ],
    ids=["stand-in", "slurm"],
)
def cluster(request, tmp_path_factory, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn | Slurm]:
    monkeypatch.setattr(slurm, "LOOKS", 0.5)
    place = request.param(tmp_path_factory.mktemp("place"), monkeypatch)
    yield place
    place.close()


def number_of(out: Path, name: str) -> str:
    """The last job of a run."""
    records = sorted(out.glob("slurm/*/jobs.json"), key=lambda path: int(path.parent.name))
    jobs = {log: number for path in records for number, (log, _) in json.loads(path.read_text()).items()}
    return jobs[f"slurm/{name}.log"]


def weights(out: Path) -> dict[str, dict[str, Any]]:
    """The weights of all runs."""
    models = {path.parent.name: load_tensors(path)[0] for path in out.glob(f"runs/*/{WEIGHTS}")}
    return {run: {name: value.tolist() for name, value in of.items()} for run, of in models.items()}


@pytest.mark.usefixtures("undrawn", "forked")
def test_a_sweep_whose_jobs_are_requeued_and_killed_is_in_the_end_that_of_this_machine(
    configs, tmp_path, cluster
):
    """One run on the stand-in, which takes long enough; two side by side on SLURM."""
    out, listener, struck = tmp_path / "out", Heard(), list[tuple[str, str]]()
    rates = f"training.learning_rate={'1e-2' if isinstance(cluster, StandIn) else '1e-2,1e-3'}"
    request = partial(request_of, configs, config=configs["word"], common=LONG, test=False)

    def log(name: str) -> str:
        return (out / "slurm" / f"{name.replace(' ', '__')}.log").read_text()

    def strike(name: str, _: dict[str, Any]) -> None:
        times, number = [n for n, _ in struck].count(name), number_of(out, name.replace(" ", "__"))
        if times == 0:
            cluster.requeue(number)
        elif times == 1 and log(name).count("$ ") == 2:  # it runs again
            cluster.kill(number)
        else:
            return
        struck.append((name, number))

    listener.validation = strike
    limits = Limits(launcher=partial(Jobs, Cluster(), out))
    assert not run_sweep(request(out, rates, limits=limits), listener)
    results, table = load(out / "sweep.json").runs, (out / "table.md").read_text()
    assert sorted(name for name, _ in struck) == sorted([run.name for run in results] * 2)
    for run in results:
        assert run.status == "failed"
        assert run.reason.startswith(f"SLURM's job {dict(struck)[run.name]} ended as ")
        assert Path(run.reason.rpartition(" ")[2]).is_file()
        assert run.reason in table
        assert run.updates < 500
    assert len(cluster.states()) == len(results)

    assert run_sweep(request(out, rates, limits=limits), Heard())
    assert len(cluster.states()) == 2 * len(results)
    assert all(log(run.name).count("$ ") == 3 for run in results)
    assert run_sweep(request(tmp_path / "here", rates, limits=Limits(parallel=2)), Heard())
    assert weights(out) == weights(tmp_path / "here")
    keys = ("name", "status", "reason", "updates", "sentences", "measured", "test", "boundaries")
    on_cluster, here = (load(folder / "sweep.json").runs for folder in (out, tmp_path / "here"))
    for one, other in zip(on_cluster, here, strict=True):
        assert [getattr(one, key) for key in keys] == [getattr(other, key) for key in keys]
        assert (one.status, one.parallel, one.curve["bleu"]) == ("finished", 1, other.curve["bleu"])


@pytest.mark.soak
@pytest.mark.parametrize("cluster", [Slurm], indirect=True)
def test_ctrl_c_a_preemption_and_a_time_that_is_over_cost_nothing(configs, tmp_path, cluster):
    """With the program as its users run it: it submits no job twice, and says what has happened."""
    out = tmp_path / "out"
    words = command(
        *("sweep", configs["word"], "--over", "training.learning_rate=1e-2", "--no-test", "--budget", "60s"),
        *("--set", "training.updates=100000000", "--set", "training.validation_freq=20000", "--out", out),
        *("--launcher", "slurm", "--partition", "tests", "--slurm", "time=1", "--slurm", "signal=TERM@10"),
    )
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as first:
        wait_for(lambda: [*out.glob("runs/*/validations.tsv")] or first.poll() is not None)
        first.send_signal(signal.SIGINT)
        output, _ = first.communicate(timeout=300)
    assert first.returncode == 130, output
    assert "1 job in SLURM; the same command looks after them again" in output
    assert cluster.states() == {"1": "RUNNING"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as second:
        cluster.ask("sbatch", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")
        wait_for(lambda: cluster.states()["1"] == "PENDING")
        cluster.ask("scontrol", "update", "JobId=1", "StartTime=now")
        output, _ = second.communicate(timeout=900)
    assert second.returncode == 0, output
    assert "1 job in SLURM from an earlier call" in output
    [run] = load(out / "sweep.json").runs
    assert (run.status, run.budget) == ("budget", 60.0)
    assert run.seconds >= 60
    one = Member("one", configs["word"], (), next(path.parent for path in out.glob("runs/*/config.yaml")))
    assert one.log.read_text().count("stopped by the signal SIGTERM") >= 2  # preempted; time over
    assert not one.failure.exists()
    states = cluster.states()
    assert states.pop("2") == "COMPLETED"  # the one that pushed it aside
    assert [state for state in states.values() if state == "CANCELLED"] == []
    assert len(states) >= 2


@pytest.mark.soak
def test_a_recipe_and_its_report_run_on_a_cluster(recipe, tmp_path, cluster):
    """Those who call have no GPU, so the report is a job too; the second call has nothing to submit."""
    out, updates = tmp_path / "out", ("training.updates=20", "training.validation_freq=100")
    words = ("reproduce", recipe, "--data", recipe / "data", "--only", "word", "--out", out)
    words = (*words, *(word for setting in updates for word in ("--set", setting)), "--launcher", "slurm")
    done = caesura(*words)
    assert done.status == 0, done.err
    assert "The report of all systems" in done.out
    assert {*cluster.states().values()} == {"COMPLETED"}
    jobs = [json.loads(path.read_text()) for path in sorted(out.glob("slurm/*/jobs.json"))]
    assert [log for of in jobs for log, _ in of.values()] == [*jobs_of(out), "report.log"]
    assert caesura(*words).status == 0
    assert len(cluster.states()) == 1 + len(jobs_of(out))


def jobs_of(out: Path) -> list[str]:
    """The logs of jobs that train."""
    return sorted(str(path.relative_to(out)) for path in out.glob("slurm/*.log"))
