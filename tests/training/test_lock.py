"""One training at a time in a folder."""

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cli.program import AT_ONCE, caesura, command, refusal, write_config, write_corpus
from wording import wording

from caesura.errors import InputError
from caesura.training import lock
from caesura.training.lock import LOCK, hold, is_held

SELF = f"process {os.getpid()} on {socket.gethostname()} (since 20"


def test_a_folder_is_held_once_and_let_go_without_a_trace(tmp_path: Path) -> None:
    messages: list[str] = []
    for _ in range(2):
        with hold(tmp_path / "a" / "b", messages.append):
            with pytest.raises(InputError) as caught, hold(tmp_path / "a" / "b", messages.append):
                pass
            assert str(caught.value).startswith(f"{tmp_path}/a/b: {SELF}")
            wording(caught.value, re.findall(r"process .*\)", str(caught.value))[0])
            with hold(tmp_path / "a" / "c", messages.append):
                pass
    assert messages == []
    assert [*(tmp_path / "a" / "b").iterdir()] == []


def test_a_folder_is_let_go_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), hold(tmp_path, print):
        raise ZeroDivisionError
    with hold(tmp_path, print):
        pass


@pytest.mark.parametrize("left", [b'{"pid": 7, "host": "far", "since": "long ago"}', b"", b"\xff", b"[1]"])
def test_what_a_dead_process_left_is_taken_over(tmp_path: Path, left: bytes) -> None:
    (tmp_path / LOCK).write_bytes(left)
    messages: list[str] = []
    with (
        hold(tmp_path, messages.append),
        pytest.raises(InputError, match=str(os.getpid())),
        hold(tmp_path, print),
    ):
        pass
    assert len(messages) == bool(left)
    assert all(("process 7 on far" in wording(line)) == (b"pid" in left) for line in messages)


def test_a_look_at_the_lock_keeps_nobody_from_taking_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "_TRIES", 10_000)  # the timer may be late
    path = tmp_path / LOCK
    path.touch()
    with path.open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.01, lambda: fcntl.flock(looking, fcntl.LOCK_UN)).start()
        with hold(tmp_path, print):
            assert is_held(tmp_path)


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match=rf"^{tmp_path / 'out' / LOCK}: "), hold(tmp_path / "out", print):
        pass
    assert (tmp_path / "precious").read_text() == "mine"


def test_of_many_that_want_it_one_has_it(tmp_path: Path) -> None:
    script = """if True:
        import sys, time
        from pathlib import Path
        from caesura.errors import InputError
        from caesura.training.lock import hold
        folder, done = Path(sys.argv[1]), 0
        while done < 60:
            try:
                with hold(folder / "held", lambda text: None):
                    (folder / "inside").mkdir()  # fails where another is inside
                    time.sleep(0.001)
                    (folder / "inside").rmdir()
                    done += 1
            except InputError:
                time.sleep(0.0005)
    """
    running = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in running:
        assert process.communicate(timeout=300)[1] == b""
        assert process.returncode == 0


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_second_training_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    write_corpus(tmp_path)
    config = write_config(tmp_path / "c.yaml", "word")
    endless = ("train", config, "--out", tmp_path / "out", "--set", "training.updates=1000000")
    running = subprocess.Popen(command(*endless), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 300
        while not (tmp_path / "out" / "validations.tsv").exists():
            assert running.poll() is None, running.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        before = names(tmp_path / "out")
        message = refusal(caesura(*endless))
        assert message.startswith(f"{tmp_path}/out: process {running.pid} on {socket.gethostname()} (since ")
        # The first goes on meanwhile: it writes beside, and removes old checkpoints.
        lasting = {name for name in before if not name.endswith(".part") and "checkpoints" not in name}
        assert lasting <= names(tmp_path / "out")
    finally:
        os.kill(running.pid, signal.SIGKILL)
        running.communicate()
    done = caesura(*endless, "--time-limit", AT_ONCE)
    assert (done.status, done.err) == (0, "")
    assert f"taken over from process {running.pid} on " in done.out
    assert not (tmp_path / "out" / LOCK).exists()
