"""How fast `caesura explore` answers: one person who moves cuts, and many clients at once.

python benchmarks/explorer.py [--requests 30] [--clients 50] [--seconds 60] [--pause 0] [--threads 2]

A server runs in a process of its own, and is asked over HTTP as the page asks it: /explain with greedy
search, another cut moved each time. The sentence has 60 characters. The model that comes with Caesura
translates it. The others have the sizes of the demo and of IWSLT14, and random weights: </s> is forbidden,
and every translation has 60 symbols. Printed are the median and the least time that the client waits, and
the time of a CPU core that the server takes per answer, which other programs change less. Where a Chromium is
installed, it opens the page and clicks at gaps; a last column has the median time from a click to the end of
the frame that shows the new translation.

Under load, every client sends sentences of its own one after the other, with a `--pause` between two. Printed
are the answers, the errors, the latency, and the memory of the server: after a quarter of the time and at the
end. The load average says how busy the machine was before.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import torch

from caesura import Translator
from caesura.config import load_config
from caesura.data.vocabulary import EOS, CharVocabulary
from caesura.experiments.demo import CONFIG, SYSTEMS
from caesura.explorer.describe import SENTENCES

OWN, LENGTH = "tatoeba-de-en", 60
SENTENCE = "Der Mann, der gestern kam, hat seinen Regenschirm vergessen."
RECIPES = Path(__file__).parents[1] / "recipes"
LETTERS = CharVocabulary([*map(chr, range(32, 127)), *"äöüÄÖÜß"])


def configs(folder: Path) -> Iterator[tuple[str, Path]]:
    """Names and configs: two models of the demo, two of IWSLT14's sizes."""
    for name in ("act", "cif"):
        path = folder / f"demo-{name}.yaml"
        path.write_text(CONFIG.format(name=name, seed=1, system=SYSTEMS[name], updates=1), encoding="utf-8")
        yield f"demo-{name}", path
    yield "iwslt14-act", RECIPES / "iwslt14" / "small" / "act.yaml"
    yield "iwslt14-cif", RECIPES / "reading" / "cif-4.yaml"


def write_models(folder: Path) -> list[Path]:
    """Untrained models that never write </s>, and so write as much as they may."""
    settings = ("testing.max_output_ratio=0", f"testing.max_output_extra={LENGTH}")
    folders = []
    for name, path in configs(folder):
        torch.manual_seed(1)
        model = Translator.build(load_config(path, settings), LETTERS, LETTERS)
        with torch.no_grad():
            model.decoder.output.bias[EOS] = -1e9
        model.save_pretrained(folder / name)
        folders.append(folder / name)
    return folders


@contextmanager
def serving(threads: int, *models: Path | str) -> Iterator[tuple[int, int]]:
    """A server of these models: its process and port."""
    command = [sys.executable, "-m", "caesura.cli", "explore", *map(str, models), "--threads", str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process.pid, int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        finally:
            process.terminate()
            process.wait(60)


def ask(connection: http.client.HTTPConnection, **body: Any) -> tuple[int, dict[str, Any]]:
    """The status and the answer of /explain."""
    content = json.dumps({"beam": 1, **body})
    connection.request("POST", "/explain", content, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def measure_latency(process: int, port: int, name: str, requests: int) -> None:
    """One person who moves cuts in one sentence."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    waited, before, written = [], 0.0, 0
    for turn in range(-3, requests):  # the first ones warm up
        if turn == 0:
            before = computed(process)
        began = time.perf_counter()
        status, answer = ask(connection, model=name, text=SENTENCE, cuts={1 + turn % (LENGTH - 1): 1})
        assert status == 200, answer
        if turn >= 0:
            waited.append(1000 * (time.perf_counter() - began))
            written = len(answer["output"]["symbols"])
    each = (computed(process) - before) / requests
    median, page = statistics.median(waited), measure_page(port, name, requests)
    print(f"| {name} | {written} | {median:.0f} | {min(waited):.0f} | {each:.0f} | {page} |")


CLICKS = """async requests => {
  const panel = document.querySelector(".panel"), waited = [];
  for (let turn = -3; turn < requests; turn += 1) {
    const began = performance.now();
    await new Promise(answered => {
      new MutationObserver((_, observer) => {
        observer.disconnect();
        requestAnimationFrame(() => setTimeout(answered));
      }).observe(panel, { attributeFilter: ["data-answered"] });
      panel.querySelectorAll(".cell input")[turn + 3].click();
    });
    if (turn >= 0) waited.push(performance.now() - began);
  }
  return waited;
}"""


def measure_page(port: int, name: str, requests: int) -> str:
    """The median milliseconds from a click to the end of the frame that shows it; "" without a browser."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from chromium import Browser, find_browser  # the tests' own

    if (program := find_browser()) is None:
        return ""
    with Browser(program) as browser:
        page = browser.window()
        page.goto(f"http://127.0.0.1:{port}/#{urlencode({'text': SENTENCE, 'model': name})}")
        page.wait_for_selector(".panel[data-answered]")
        return f"{statistics.median(page.evaluate(CLICKS, min(requests, LENGTH - 4))):.0f}"


def computed(process: int) -> float:
    """Milliseconds of a CPU core that a process has had."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Client(threading.Thread):
    """One client, until it is told to stop."""

    def __init__(self, port: int, seed: int, pause: float, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.port, self.draw, self.pause, self.stop = port, random.Random(seed), pause, stop
        self.waited: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        """Ask and wait."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)) as connection:
            self._ask(connection)

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        while not self.stop.is_set():
            began = time.perf_counter()
            try:
                status, answer = ask(connection, model=OWN, text=self.draw.choice(SENTENCES["de"]))
            except (OSError, http.client.HTTPException) as problem:
                self.errors.append(repr(problem))
                connection.close()
                continue
            self.waited.append(1000 * (time.perf_counter() - began))
            if status != 200:
                self.errors.append(str(answer))
            self.stop.wait(self.draw.uniform(0, 2 * self.pause))


def memory_of(process: int) -> float:
    """MiB of a process that are in memory."""
    fields = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return int(fields.partition("VmRSS:")[2].split()[0]) / 1024


@dataclass(frozen=True)
class Load:
    """What came of many clients at once."""

    waited: list[float]  # milliseconds of each answer, the shortest first
    errors: list[str]
    each: float  # milliseconds of a CPU core per answer
    early: float  # MiB of the server after a quarter of the time
    late: float  # and at the end


def load(process: int, port: int, count: int, seconds: float, pause: float) -> Load:
    """Many clients at once."""
    stop = threading.Event()
    clients = [Client(port, seed, pause, stop) for seed in range(count)]
    for client in clients:
        client.start()
    time.sleep(seconds / 4)
    early, before = memory_of(process), computed(process)
    done = sum(len(client.waited) for client in clients)
    time.sleep(seconds * 3 / 4)
    late, spent = memory_of(process), computed(process) - before
    done = sum(len(client.waited) for client in clients) - done
    stop.set()
    for client in clients:
        client.join(120)
    waited = sorted(ms for client in clients for ms in client.waited)
    errors = [error for client in clients for error in client.errors]
    return Load(waited, errors, spent / max(1, done), early, late)


def measure_load(process: int, port: int, asked: argparse.Namespace) -> None:
    """Print what comes of it."""
    seen = load(process, port, asked.clients, asked.seconds, asked.pause)
    waited, errors = seen.waited, seen.errors
    print(f"{asked.clients} clients for {asked.seconds:g} s, pauses of {asked.pause:g} s on average")
    print(f"{len(waited)} answers, {len(errors)} errors {errors[:1]}")
    slow = waited[int(0.95 * len(waited))]
    print(f"latency: median {statistics.median(waited):.0f} ms, 95% below {slow:.0f} ms")
    print(f"the server took {seen.each:.0f} ms of a CPU core per answer")
    print(f"memory of the server: {seen.early:.0f} MiB after a quarter, {seen.late:.0f} MiB at the end")


def main() -> None:
    """Print both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=30)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--only", nargs="*", choices=("latency", "load"), default=("latency", "load"))
    asked = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    if "latency" in asked.only:
        with tempfile.TemporaryDirectory() as home:
            folders = write_models(Path(home))
            with serving(asked.threads, OWN, *folders) as (process, port):
                print("| model | symbols written | median ms | least | CPU | page |\n" + 6 * "|---" + "|")
                for name in (OWN, *(folder.name for folder in folders)):
                    measure_latency(process, port, name, asked.requests)
    if "load" in asked.only:
        with serving(asked.threads, OWN) as (process, port):
            measure_load(process, port, asked)


if __name__ == "__main__":
    main()
