"""The SLURM launcher, with a stand-in for SLURM's programs: how jobs start, end, and are found again."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.program import caesura, refusal
from experiments import stand_in
from experiments.clusters import StandIn
from experiments.fleets import wait_for
from wording import refuses, wording

from caesura.data.files import read_tail
from caesura.errors import InputError
from caesura.experiments import slurm
from caesura.experiments.slurm import Cluster, Jobs, parse_options

pytestmark = pytest.mark.usefixtures("no_ignored_signals")

WAITING = """
import signal, sys, time

def save(*_):
    print("saved", flush=True)
    sys.exit(143)

signal.signal(signal.SIGTERM, save)
print("up", flush=True)
time.sleep(60)
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.setattr(slurm, "LOOKS", 0.2)
    place = StandIn(tmp_path, monkeypatch)
    yield place
    place.close()


def shell(text: str) -> list[str]:
    return ["sh", "-c", text]


def jobs(tmp_path: Path, said: list[str] | None = None, **given: object) -> Jobs:
    """A launcher for the experiment in `out`."""
    (tmp_path / "out").mkdir(exist_ok=True)
    return Jobs(Cluster(**given), tmp_path / "out", [].append if said is None else said.append)  # type: ignore[arg-type]


def ends(launcher: Jobs, count: int) -> dict[str, int]:
    """The statuses of so many jobs, when they have ended."""
    statuses: dict[str, int] = {}

    def ended() -> bool:
        statuses.update(launcher.ended())
        return len(statuses) == count

    wait_for(ended)
    return statuses


def test_commands_end_with_their_statuses_and_their_output_in_their_logs(
    tmp_path: Path, cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for key in ("SLURM_CONF", "SLURM_NTASKS"):  # where SLURM is, and what a job around this call was given
        monkeypatch.setenv(key, key)
    log, printed = tmp_path / "out" / "ö.log", tmp_path / "printed"
    with jobs(tmp_path, said) as launcher:
        launcher.start(
            "good",
            shell("echo $WORD $SLURM_CONF $SLURM_NTASKS; echo error >&2"),
            log,
            {"WORD": "zürich"},
            printed,
        )
        launcher.start("bad", shell("echo bad; exit 3"), tmp_path / "out" / "bad.log")
        assert ends(launcher, 2) == {"good": 0, "bad": 3}
        assert (launcher.running, launcher.reason("bad")) == ({}, "")
    assert printed.read_text() == "zürich SLURM_CONF\n"
    assert os.environ["SLURM_NTASKS"] == "SLURM_NTASKS"
    assert log.read_text().splitlines()[1:] == ["error"]
    assert (tmp_path / "out" / "bad.log").read_text() == "$ sh -c 'echo bad; exit 3'\nbad\n"
    assert cluster.states() == {"1_0": "COMPLETED", "1_1": "FAILED"}
    script = (tmp_path / "out" / "slurm" / "1" / "1_submission.sh").read_text()
    for line in ("--array=0-1%2", f"--job-name={launcher.name}", "--requeue", "--signal=TERM@120"):
        assert f"#SBATCH {line}\n" in script
    assert "time" not in script
    [message] = said
    wording(message, launcher.name)


def test_the_options_of_sbatch_are_handed_on(tmp_path: Path, cluster: StandIn) -> None:
    others = parse_options(["time=4:00:00", "--mem=32G", "cpus-per-task=2", "exclusive", "signal=TERM@30"])
    with jobs(tmp_path, partition="tests", gpus_per_task=1, parallel=1, others=others) as launcher:
        for name in ("one", "two"):
            launcher.start(name, ["true"], tmp_path / "out" / name)
        ends(launcher, 2)
    script = (tmp_path / "out" / "slurm" / "1" / "1_submission.sh").read_text().splitlines()
    assert {f"#SBATCH --{option}" for option in (
        "array=0-1%1", "partition=tests", "gpus-per-task=1", "time=4:00:00", "mem=32G", "cpus-per-task=2",
        "exclusive", "signal=TERM@30", "ntasks=1",
    )} <= {*script}  # fmt: skip
    assert sum("signal" in line for line in script) == 1
    assert ["--cpus-per-task=2" in line for line in script if line.startswith("srun ")] == [True]


def test_a_killed_job_names_its_state_and_its_log(tmp_path: Path, cluster: StandIn) -> None:
    with jobs(tmp_path) as launcher:
        launcher.start("one", [sys.executable, "-c", WAITING], log := tmp_path / "out" / "one.log")
        wait_for(lambda: launcher.ended() == {} and log.exists() and "\nup\n" in log.read_text())
        cluster.kill("1")
        assert ends(launcher, 1) == {"one": -signal.SIGKILL}
        reason = wording(launcher.reason("one"))
    assert "job 1 ended as OUT_OF_MEMORY" in reason
    assert Path(reason.rpartition(" ")[2]).is_file()


def test_who_cancels_a_job_gets_no_other_one_in_its_place(tmp_path: Path, cluster: StandIn) -> None:
    with jobs(tmp_path) as launcher:
        launcher.start("one", [sys.executable, "-c", WAITING], log := tmp_path / "out" / "one.log")
        wait_for(lambda: launcher.ended() == {} and log.exists() and "\nup\n" in log.read_text())
        stand_in.scancel("1")
        assert ends(launcher, 1) == {"one": -signal.SIGKILL}  # though it has saved
        assert "CANCELLED" in launcher.reason("one")
    wait_for(lambda: log.read_text().endswith("saved\n"))


def test_a_requeued_job_runs_again_and_its_last_end_counts(tmp_path: Path, cluster: StandIn) -> None:
    log = tmp_path / "out" / "one.log"
    command = shell("[ -e again ] && exit 0; touch again; trap 'exit 143' TERM; echo up; sleep 60 & wait")
    with jobs(tmp_path) as launcher:
        os.chdir(tmp_path)
        launcher.start("one", command, log)
        wait_for(lambda: launcher.ended() == {} and log.exists() and "\nup\n" in log.read_text())
        cluster.requeue("1")
        assert ends(launcher, 1) == {"one": 0}
    assert log.read_text().count("\n$ ") == 1


def test_jobs_outlive_ctrl_c_and_the_next_call_finds_them(tmp_path: Path, cluster: StandIn) -> None:
    said: list[str] = []
    (cluster.home / "hold").touch()
    log = tmp_path / "out" / "one.log"
    with jobs(tmp_path, said) as launcher:
        launcher.start("one", shell("exit 5"), log)
        wait_for(lambda: launcher.ended() == {} and launcher.place("one") == "job 1 pending (Resources)")
        os.kill(os.getpid(), signal.SIGINT)
        wait_for(lambda: launcher.signal is not None)
    assert cluster.states() == {"1": "PENDING"}
    wording(said[-1], launcher.name)
    with jobs(tmp_path, said) as launcher:
        launcher.start("one", shell("exit 6"), log)
        launcher.start("two", shell("exit 7"), tmp_path / "out" / "two.log")
        (cluster.home / "hold").unlink()
        assert ends(launcher, 2) == {"one": 5, "two": 7}
    assert {*cluster.states()} == {"1", "2"}
    with jobs(tmp_path, said) as launcher:  # what has ended is not found again
        launcher.start("one", shell("exit 8"), log)
        assert ends(launcher, 1) == {"one": 8}


def test_a_job_that_does_not_outlive_its_call_is_ended_by_it_or_by_the_next_one(
    tmp_path: Path, cluster: StandIn
) -> None:
    log = tmp_path / "out" / "one.log"
    (cluster.home / "hold").touch()
    for outlive, number, state in ((False, "1", "CANCELLED"), (True, "2", "PENDING")):
        with jobs(tmp_path) as launcher:
            launcher.outlive = outlive
            launcher.start("one", ["true"], log)
            launcher.ended()
            launcher.signal = signal.SIGTERM
        assert cluster.states()[number] == state
    with jobs(tmp_path) as launcher:
        launcher.discard(log)
        launcher.discard(log)
        assert cluster.states()["2"] == "CANCELLED"
        (cluster.home / "hold").unlink()
        launcher.start("one", ["true"], log)
        assert ends(launcher, 1) == {"one": 0}
    assert {*cluster.states()} == {"1", "2", "3"}


def test_what_a_killed_call_had_no_time_to_note_is_cancelled(tmp_path: Path, cluster: StandIn) -> None:
    said: list[str] = []
    (cluster.home / "hold").touch()
    with jobs(tmp_path) as launcher:
        launcher.start("one", ["true"], tmp_path / "out" / "one.log")
        launcher.ended()
        launcher.signal = signal.SIGINT
    (tmp_path / "out" / "slurm" / "1" / "jobs.json").unlink()
    (tmp_path / "other").mkdir()
    with Jobs(Cluster(), tmp_path / "other", said.append):  # of another folder, nothing is
        assert (cluster.states(), said) == ({"1": "PENDING"}, [])
    with jobs(tmp_path, said):
        assert cluster.states() == {"1": "CANCELLED"}
    wording(said[0])


def test_at_its_end_a_call_asks_jobs_to_save_and_cancels_those_that_wait(
    tmp_path: Path, cluster: StandIn
) -> None:
    log = tmp_path / "out" / "one.log"
    with jobs(tmp_path) as launcher:
        launcher.start("one", [sys.executable, "-c", WAITING], log)
        wait_for(lambda: launcher.ended() == {} and log.exists() and "\nup\n" in log.read_text())
        (cluster.home / "hold").touch()
        launcher.start("two", ["true"], tmp_path / "out" / "two.log")
        launcher.ended()
        running = dict(launcher.running)
    assert {name: job.returncode for name, job in running.items()} == {"one": 143, "two": 143}
    assert log.read_text().endswith("saved\n")
    assert cluster.states() == {"1": "FAILED", "2": "CANCELLED"}


def test_a_queue_that_does_not_answer_and_a_status_that_comes_late_end_no_job(
    tmp_path: Path, cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = ["", ""]
    monkeypatch.setattr(slurm, "read_tail", lambda *given: late.pop() if late else read_tail(*given))
    said: list[str] = []
    with jobs(tmp_path, said) as launcher:
        (cluster.home / "hold").touch()
        launcher.start("one", ["true"], tmp_path / "out" / "one.log")
        launcher.ended()
        (cluster.home / "down").touch()
        wait_for(lambda: launcher.ended() == {} and len(said) == 2)
        (cluster.home / "down").unlink()
        (cluster.home / "hold").unlink()
        assert ends(launcher, 1) == {"one": 0}
    assert late == []
    assert [wording(message) for message in said[1:]] == said[1:]
    (cluster.home / "down").touch()
    with refuses(InputError), jobs(tmp_path):
        pass


def test_a_planted_folder_or_record_starts_ends_and_hides_nothing(tmp_path: Path, cluster: StandIn) -> None:
    """What a stranger has put into an experiment's folder is neither run nor taken for ours."""
    planted = tmp_path / "out" / "slurm" / "2"
    planted.mkdir(parents=True)
    for number in range(9):
        (planted / f"{number}_submitted.pkl").write_bytes(b"cos\nsystem\n(S'touch planted'\ntR.")
    for content in ("[]", "{", '{"1": 1}', '{"1": ["one.log", "../../../x"]}', '{"1": [[], {}]}'):
        (planted / "jobs.json").write_text(content)
        with jobs(tmp_path) as launcher:
            pass
    (planted / "jobs.json").write_text(json.dumps({"1": ["one.log", "end"]}))
    with jobs(tmp_path) as launcher:
        launcher.start("one", shell("exit 4"), tmp_path / "out" / "one.log")
        assert ends(launcher, 1) == {"one": 4}
    assert len([*planted.iterdir()]) == 10
    assert not (Path.cwd() / "planted").exists()


def test_a_folder_that_slurm_cannot_write_to_is_refused(tmp_path: Path, cluster: StandIn) -> None:
    for name in ("100%", "a\nb"):
        with refuses(InputError, tmp_path), Jobs(Cluster(), tmp_path / name, print):
            pass
    assert Jobs(Cluster(), tmp_path / "ä, b", print).name.startswith("___b-")


@pytest.mark.parametrize(
    "options",
    [
        ["--partition", "p"],
        ["--slurm", "time=9"],
        ["--launcher", "slurm", "--parallel", "2"],
        ["--launcher", "slurm", "--slurm", "=4"],
        ["--launcher", "slurm", "--slurm", "partition=p"],
        ["--launcher", "slurm", "--slurm", "output=here"],
    ],
    ids=" ".join,
)
def test_options_that_do_not_fit_are_refused(tmp_path: Path, options: list[str]) -> None:
    for words in (("sweep", "recipes/your-text.yaml"), ("reproduce", "multi30k")):
        wording(refusal(caesura(*words, "--out", tmp_path / "out", *options)))
    assert not (tmp_path / "out").exists()


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("sweep", "recipes/your-text.yaml", "--out", tmp_path / "out", "--launcher", "slurm")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sbatch" in wording(refusal(caesura(*words)))
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert "[slurm]" in wording(refusal(caesura(*words)))
    done = caesura(*words[:-1], "pbs")
    assert (done.status, "'pbs' is not one of 'local', 'slurm'" in done.err) == (2, True)
    assert not (tmp_path / "out").exists()


def test_what_sbatch_refuses_is_one_sentence(
    configs: dict[str, Path], tmp_path: Path, cluster: StandIn
) -> None:
    words = ("sweep", configs["word"], "--seeds", "1,2", "--out", tmp_path / "out", "--no-test")
    done = caesura(*words, "--launcher", "slurm", "--partition", "nope")
    assert "invalid partition specified: nope" in wording(refusal(done))
    assert not [*(tmp_path / "out").glob("runs/*.failed")]
