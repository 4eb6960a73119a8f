"""Clusters to test the launcher on: a stand-in, and SLURM itself with this machine as its only node."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from experiments import stand_in
from experiments.fleets import wait_for


class StandIn:
    """Jobs as processes, by programs that come first in PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = folder / "cluster"
        self.home.mkdir()
        stand_in.install(folder / "bin")
        monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("CAESURA_STAND_IN", str(self.home))
        monkeypatch.setattr(stand_in, "HOME", self.home)

    def states(self) -> dict[str, str]:
        """The states of all jobs that were ever submitted."""
        return {number: stand_in.read(number)["state"] for number in stand_in.numbers()}

    def kill(self, number: str) -> None:
        """Kill all processes of a job, as where its machine has no memory left."""
        stand_in.write(number, state="OUT_OF_MEMORY")
        stand_in.tell(number, signal.SIGKILL)

    def requeue(self, number: str) -> None:
        """Put a running job back into the queue."""
        stand_in.scontrol("requeue", number)

    def close(self) -> None:
        """End what a test has left."""
        for number, state in self.states().items():
            if state in ("PENDING", "RUNNING"):
                stand_in.write(number, state="CANCELLED")
                with suppress(ProcessLookupError):
                    stand_in.tell(number, signal.SIGKILL)


CONFIG = """\
ClusterName=caesura
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
MpiDefault=none
ReturnToService=2
KillWait=30
MinJobAge=7200
PreemptMode=REQUEUE
PreemptType=preempt/partition_prio
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=tests Nodes={host} Default=YES State=UP PriorityTier=1
PartitionName=urgent Nodes={host} State=UP PriorityTier=10
"""
DAEMONS = "munged", "slurmctld", "slurmd"


class Slurm:
    """SLURM with a key, ports and a configuration of its own; the test is skipped where it cannot run."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        missing = [name for name in (*DAEMONS, "sbatch") if shutil.which(name) is None]
        if missing or os.getuid() != 0:
            pytest.skip(f"no {', '.join(missing) or 'root'}; Debian: slurmctld slurmd slurm-client munge")
        for name in ("munge", "state", "spool"):
            (folder / name).mkdir(parents=True)
        self.folder, self._daemons = folder, list[subprocess.Popen[bytes]]()
        with ExitStack() as stack:
            free = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
            ports = [server.getsockname()[1] for server in free]
        names = {"host": socket.gethostname(), "folder": folder, "cpus": os.cpu_count()}
        path = folder / "slurm.conf"
        path.write_text(CONFIG.format(**names, controller=ports[0], node=ports[1]))
        monkeypatch.setenv("SLURM_CONF", str(path))
        key = folder / "munge" / "key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = {"socket": "socket", "key-file": "key", "seed-file": "seed", "pid-file": "pid"}
        options = [f"--{option}={folder / 'munge' / name}" for option, name in files.items()]
        self._start("munged", "--foreground", "--force", f"--log-file={folder / 'munge' / 'log'}", *options)
        wait_for((folder / "munge" / "socket").exists)
        self._start("slurmctld", "-D", "-f", path)
        self._start("slurmd", "-D", "-f", path)
        try:
            wait_for(lambda: not self.alive() or "idle" in self.ask("sinfo", "--noheader", "--format=%T"))
        except AssertionError:
            self.close()
        if not self.alive():
            self.close()
            logs = [path.read_text(errors="replace").splitlines()[-1:] for path in folder.glob("*.out")]
            pytest.skip(f"SLURM does not run here: {logs}")

    def _start(self, name: str, *options: object) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            self._daemons.append(
                subprocess.Popen([name, *map(str, options)], stdout=out, stderr=out, start_new_session=True)
            )

    def alive(self) -> bool:
        """Whether its daemons run."""
        return bool(self._daemons) and all(daemon.poll() is None for daemon in self._daemons)

    def ask(self, *words: str) -> str:
        """What a program of SLURM prints."""
        return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout

    def states(self) -> dict[str, str]:
        """The states of all jobs that it knows."""
        rows = self.ask("squeue", "--array", "--states=all", "--noheader", "--format=%i %T").splitlines()
        return dict(sorted(row.split() for row in rows))

    def kill(self, number: str) -> None:
        """Kill all processes of a job."""
        self.ask("scancel", "--signal=KILL", number)

    def requeue(self, number: str) -> None:
        """Put a running job back into the queue, and let it run again without a pause."""
        self.ask("scontrol", "requeue", number)
        wait_for(lambda: self.states()[number] == "PENDING")
        self.ask("scontrol", "update", f"JobId={number}", "StartTime=now")

    def close(self) -> None:
        """End all jobs, then the daemons."""
        if self.alive():
            self.ask("scancel", "--me")
            self.ask("scancel", "--me", "--signal=KILL", "--full")
            with suppress(AssertionError):
                wait_for(lambda: not self.ask("squeue", "--noheader"))
        for daemon in reversed(self._daemons):
            daemon.terminate()
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(60)
            daemon.kill()
            daemon.wait()
        self._daemons = []
