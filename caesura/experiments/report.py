"""The report of a recipe's systems, made by `caesura compare` where their trainings run."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from caesura import terminal
from caesura.analysis.report import PAGE, clear
from caesura.config import Config, Files
from caesura.data.files import read_json, read_tail, write_whole
from caesura.data.held import check_held
from caesura.errors import Interrupted
from caesura.experiments.fleet import Limits
from caesura.experiments.outcome import weights_checksum
from caesura.experiments.processes import POLL, Children
from caesura.experiments.recipe import unique_titles
from caesura.experiments.results import SystemResult
from caesura.experiments.telling import last_words
from caesura.visible import one_line


def write_report(
    results: Sequence[SystemResult], folder: Path, log: Path, config: Config, limits: Limits
) -> None:
    """Write a report on systems if it is out of date; each is shown by its best seed that has weights."""
    names = unique_titles([result.system for result in results])
    best = {name: result.at_hand for name, result in zip(names, results, strict=True)}
    folders = {name: outcome.member.folder for name, outcome in best.items() if outcome}
    if not folders:
        terminal.say("no report: no system has weights")
        return
    page, made_from = folder / PAGE, folder / "made_from.json"
    facts = {f.name: {"name": name, "weights": weights_checksum(f)} for name, f in folders.items()}
    before = _made_from(made_from) if page.exists() else {}
    if not facts.items() <= before.items():  # one of more systems stays when a folder is deleted
        problem = _compare(folders, page.parent, log, config, limits)
        if problem:
            terminal.say(one_line(f"no report: {problem}"))
            return
        write_whole(made_from, json.dumps(facts, indent=1, ensure_ascii=False))
        before = facts
    shown = [entry["name"] for entry in before.values()]
    lacking = ", ".join(name for name in names if name not in shown)
    what = f"without {lacking}, whose weights are not there" if lacking else "of all systems"
    terminal.say(one_line(f"The report {what}: {page}"))


def _compare(folders: Mapping[str, Path], out: Path, log: Path, config: Config, limits: Limits) -> str:
    """Run `caesura compare` by the launcher of the trainings; returns the error message, or ""."""
    test = config.data.test
    if test is None:
        return "the configs name no data.test"
    text = ("--src", test.src, "--trg", test.trg) if isinstance(test, Files) else ("--src", test)
    device = "cpu" if config.training.device == "cpu" else "auto"
    names = [f"--name={name}" for name in folders]
    words = ["compare", *folders.values(), *names, *text, "--out", out, "--device", device]
    command = [sys.executable, "-m", "caesura.cli", *map(str, words)]
    began, status = time.monotonic(), None
    launch = limits.launcher or Children
    with launch(terminal.say) as launcher, terminal.telling("the report") as tell:
        launcher.outlive = False  # another call may want a report on more systems
        launcher.discard(log)
        clear(out)
        check_held(log)
        log.write_text(f"$ {shlex.join(command)}\n", encoding="utf-8")
        launcher.start("report", command, log, {terminal.WATCHED: "1"})
        while status is None and launcher.signal is None:
            if limits.time_limit is not None and time.monotonic() - began > limits.time_limit:
                return "the time limit came before it was done; the same command goes on"
            time.sleep(POLL)
            check_held(log)
            tell(launcher.place("report") or _last_line(log) or "starting")
            status = launcher.ended().get("report")
    if launcher.signal is not None:
        raise Interrupted(launcher.signal)
    reason = launcher.reason("report") or last_words(log)
    return f"{reason} (all of it: {log})" if status else ""


def _made_from(path: Path) -> dict[str, dict[str, str]]:
    """The weights that a report was made from, by folder; none where that cannot be read."""
    try:
        facts: dict[str, dict[str, str]] = read_json(path)
    except (OSError, ValueError):
        return {}
    return facts


def _last_line(log: Path) -> str:
    """The last line that a process has printed so far."""
    whole, _, _ = read_tail(log).rpartition("\n")
    lines = [line for line in whole.splitlines()[1:] if line.strip() and line.isprintable()]
    return lines[-1] if lines else ""
