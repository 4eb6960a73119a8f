"""As much of SLURM as a launcher asks for: jobs are processes of this machine. All programs are this file.

The folder CAESURA_STAND_IN has a file per job: `NUMBER` with its name and state, `NUMBER.step` with the
process of its step. A job waits while a file `hold` is there. As in SLURM, signals reach the step alone, at
whose end the script ends. Messages and states are those of SLURM 22.05; `test_slurm_sweep.py` runs on both.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

PROGRAMS = "sbatch", "srun", "squeue", "scancel", "scontrol"
HOME = Path(os.environ.get("CAESURA_STAND_IN", "."))


def install(folder: Path) -> None:
    """Put the programs into a folder."""
    folder.mkdir()
    source = Path(__file__).read_text(encoding="utf-8")
    for name in PROGRAMS:
        (folder / name).write_text(f"#!{sys.executable} -SE\n{source}", encoding="utf-8")
        (folder / name).chmod(0o755)


def write(number: str, **facts: str) -> None:
    """Change what is known of a job; readers never see half of it."""
    beside = HOME / f".{number}.{os.getpid()}"
    beside.write_text(json.dumps(read(number) | facts))
    beside.replace(HOME / number)


def read(number: str) -> dict[str, str]:
    """What is known of a job."""
    path = HOME / number
    return dict(json.loads(path.read_text())) if path.exists() else {}


def numbers() -> list[str]:
    """All jobs that were ever submitted."""
    return sorted(path.name for path in HOME.iterdir() if re.fullmatch(r"\d+(_\d+)?", path.name))


def sbatch(script: str) -> None:
    """Submit a script: a job, or one per task of an array."""
    text = Path(script).read_text()
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=?(.*)$", text, re.MULTILINE))
    if options.get("partition", "tests") != "tests":
        print(f"sbatch: error: invalid partition specified: {options['partition']}", file=sys.stderr)
        why = "Invalid partition name specified"
        sys.exit(f"sbatch: error: Batch job submission failed: {why}")
    number = 1 + max((int(job.partition("_")[0]) for job in numbers()), default=0)
    tasks = re.match(r"0-(\d+)%", options.get("array", ""))
    for at in range(int(tasks[1]) + 1) if tasks else [None]:
        name = str(number) if at is None else f"{number}_{at}"
        write(name, name=options["job-name"], state="PENDING")
        variables = {"SLURM_JOB_ID": str(number)}
        if at is not None:
            variables |= {"SLURM_ARRAY_JOB_ID": str(number), "SLURM_ARRAY_TASK_ID": str(at)}
        subprocess.Popen(
            [sys.executable, "-SE", sys.argv[0], "--attend", name, script],
            env=os.environ | variables | {"STAND_IN_JOB": name},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    print(f"Submitted batch job {number}")


def attend(number: str, script: str) -> None:
    """Run a job, again after each requeue."""
    while True:
        while (HOME / "hold").exists() and read(number)["state"] == "PENDING":
            time.sleep(0.02)
        if read(number)["state"] == "CANCELLED" or not HOME.exists():
            return
        write(number, state="RUNNING")
        status = subprocess.call(["bash", script])
        if read(number)["state"] != "REQUEUED":
            break
        write(number, state="PENDING")
    if read(number)["state"] == "RUNNING":
        write(number, state="FAILED" if status else "COMPLETED")


def srun(*words: str) -> None:
    """Become the command of a step, with its output in files."""
    given, number = list(words), os.environ["STAND_IN_JOB"]
    array, _, task = number.partition("_")
    files = {}
    while given[0].startswith("--"):
        option = given.pop(0)
        if option in ("--output", "--error"):
            name = given.pop(0).replace("%t", "0").replace("%j", number)
            files[option] = name.replace("%A", array).replace("%a", task)
    os.setsid()
    for option, to in (("--output", 1), ("--error", 2)):
        os.dup2(os.open(files[option], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), to)
    (HOME / f"{number}.step").write_text(str(os.getpid()))
    os.execvp(given[0], given)


def tell(number: str, what: int) -> None:
    """Send a signal to the step of a job."""
    step = HOME / f"{number}.step"
    if step.exists():
        os.killpg(int(step.read_text()), what)


def squeue(*words: str) -> None:
    """The jobs of a name, those that have ended too."""
    if (HOME / "down").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    expected = ["--me", "--array", "--states=all", "--noheader", "--format=%i|%T|%r"]
    [name] = [word.removeprefix("--name=") for word in words if word.startswith("--name=")]
    assert [word for word in words if not word.startswith("--name=")] == expected, shlex.join(words)
    for number in numbers():
        job = read(number)
        if job["name"] == name:
            print(f"{number}|{job['state']}|{'Resources' if job['state'] == 'PENDING' else 'None'}")


def scancel(*words: str) -> None:
    """Cancel jobs, or only those that wait, or send a signal to those that run."""
    for number in (word for word in words if not word.startswith("--")):
        state = read(number)["state"]
        if "--signal=TERM" in words:
            if state == "RUNNING":
                tell(number, signal.SIGTERM)
        elif state == "PENDING" or (state == "RUNNING" and "--state=PENDING" not in words):
            write(number, state="CANCELLED")
            if state == "RUNNING":
                tell(number, signal.SIGTERM)


def scontrol(requeue: str, number: str) -> None:
    """Put a job back into the queue: it is asked to end, and begins again."""
    assert requeue == "requeue"
    write(number, state="REQUEUED")
    tell(number, signal.SIGTERM)


if __name__ == "__main__":
    if sys.argv[1] == "--attend":
        attend(*sys.argv[2:])
    else:
        globals()[Path(sys.argv[0]).name](*sys.argv[1:])
