"""`caesura explore` itself: a link, its refusals, and a quiet end."""

import json
import os
import signal
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.program import caesura, command, refusal
from explorer.asking import OWN, SENTENCE
from wording import wording

from caesura.explorer.serve import open_browser
from caesura.explorer.server import STATIC

pytestmark = pytest.mark.usefixtures("no_ignored_signals")
BODY = json.dumps({"model": OWN, "text": SENTENCE, "beam": 1}).encode()


@pytest.fixture
def started() -> Iterator[Any]:
    """Starts servers, and ends those that a test leaves behind."""
    processes: list[subprocess.Popen[str]] = []

    def start(*options: object) -> tuple[subprocess.Popen[str], str]:
        environment = {**os.environ, "BROWSER": "true", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command("explore", OWN, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        processes.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline().strip()

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ask(link: str, path: str, body: bytes | None = None, **headers: str) -> Any:
    """What a server in another process answers."""
    sent = {"content-type": "application/json", **headers}
    request = urllib.request.Request(link + path, data=body, headers=sent)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.loads(response.read())


def test_it_prints_a_link_answers_and_ends_with_ctrl_c(started: Any) -> None:
    process, link = started("--open")
    assert link.startswith("http://127.0.0.1:")
    assert ask(link, "explain", BODY)["translation"]
    with urllib.request.urlopen(link, timeout=60) as page:
        assert page.read() == (STATIC / "index.html").read_bytes()
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "Ctrl-C stops it\n")


@pytest.mark.slow
def test_sigterm_ends_it_while_it_computes(started: Any) -> None:
    process, link = started("--threads", 1)
    many = json.dumps({"model": OWN, "texts": [SENTENCE * 10] * 32, "beam": 10}).encode()

    def wait() -> None:
        with pytest.raises((OSError, ValueError)):
            ask(link, "translate", many)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    ask(link, "explain", BODY)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "Ctrl-C stops it\n")
    waiting.join(60)
    assert not waiting.is_alive()


@pytest.mark.slow
def test_beyond_this_machine_there_is_a_warning_and_a_token(started: Any) -> None:
    process, link = started("--host", "0.0.0.0")
    address, mark, token = link.partition("#token=")
    assert mark
    port = address.rstrip("/").rpartition(":")[2]
    here = f"http://127.0.0.1:{port}/"
    with pytest.raises(urllib.error.HTTPError) as caught:
        ask(here, "explain", BODY)
    assert caught.value.code == 401
    caught.value.close()
    assert ask(here, "explain", BODY, authorization=f"Bearer {token}")["translation"]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    warning, rest = err.split("\n", 1)
    wording(warning.removeprefix("caesura: "))
    assert rest == "Ctrl-C stops it\n"


def test_without_a_screen_no_browser_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda link: opened.append(link) or True)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not open_browser("http://a/")
    monkeypatch.setenv("DISPLAY", ":0")
    assert open_browser("http://b/")
    assert opened == ["http://b/"]


def test_bad_addresses_are_one_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        message = refusal(caesura("explore", OWN, "--port", port))
        assert f"--port {port}" in wording(message, port)
    wording(refusal(caesura("explore", OWN, "--host", "no.such.host.invalid")).partition(":")[0])


def test_bad_models_are_one_sentence(tmp_path: Path) -> None:
    wording(refusal(caesura("explore", tmp_path / "none")), tmp_path)
    wording(refusal(caesura("explore", OWN, OWN)))


def test_without_the_extra_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caesura.cli.exploring.find_spec", lambda name: None)
    wording(refusal(caesura("explore", OWN)))
