"""How far a training is, how it ended, and why it failed, in words."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from caesura.data.files import read_tail
from caesura.evaluation.rates import aim
from caesura.experiments.outcome import Member, Outcome
from caesura.terminal import duration
from caesura.training.interrupt import overrun
from caesura.training.journal import read_records
from caesura.visible import one_line

FEW_UPDATES = 10  # after fewer, a model that had no time for more is not worth a look


def progress_line(records: Sequence[dict[str, Any]], budget: float | None) -> str:
    """How far a training is, in a few words."""
    if not records:
        return "starting"
    seconds = next((r["seconds"] for r in reversed(records) if "seconds" in r), 0.0)
    sentences = next((r["sentences"] for r in reversed(records) if "sentences" in r), 0)
    parts = [f"update {records[-1]['update']:,}", f"{sentences:,} sentences"]
    validated = [r for r in records if r["kind"] in ("start", "validation")]
    if validated and "bleu" in validated[-1]:
        parts.append(f"BLEU {validated[-1]['bleu']:.2f}")
    for record in validated[-1:]:
        parts.append(f"segments {record['segment_length']:.2f}{aim(record.get('target_length'))}")
    parts.append(duration(seconds) if budget is None else f"{duration(max(0.0, budget - seconds))} left")
    return "  ".join(parts)


def summary(outcome: Outcome) -> str:
    """How a member ended, in one sentence."""
    ending = {"budget": "its budget is spent", "finished": outcome.reason}.get(outcome.status, outcome.status)
    updates, seconds = outcome.progress.update, outcome.progress.seconds
    count = "1 update" if updates == 1 else f"{updates:,} updates"
    if ending == f"{updates} updates":
        ending = "finished"
    over = overrun(seconds, outcome.budget) if outcome.status == "budget" else ""
    parts = [f"{ending} after {count}, {duration(seconds)}{over}"]
    if over and updates < FEW_UPDATES:
        parts.append("so few teach a model nothing; a larger --budget goes on from here")
    if (best := outcome.best) is not None:
        parts.append(f"best on dev BLEU {best['bleu']:.2f} after {duration(best['seconds'])}")
    else:
        parts.append("no validation yet")
    if "test" in outcome.measured:
        parts.append(f"test BLEU {outcome.measured['test']['scores']['bleu']:.2f}")
    return "; ".join(parts)


def reason(member: Member, status: int) -> str:
    """Why a process of a member ended as it did."""
    words = last_words(member.log)
    if status > 0:
        return f"{words or 'it printed nothing'} (status {status})"
    name = signal.Signals(-status).name
    if words:
        return f"{words} ({name})"
    memory = " (out of memory?)" if status == -signal.SIGKILL else ""
    update = max((record["update"] for record in read_records(member.folder)), default=0)
    return f"killed by {name}{memory} after {update:,} updates"


def last_words(log: Path) -> str:
    """The error sentence, or the end of a traceback, in the output of a process; empty without one."""
    *_, printed = read_tail(log).rpartition("\n$ ")
    lines = [one_line(" ".join(line.split())) for line in printed.splitlines()[1:] if line.strip()]
    errors = [line.removeprefix("caesura: ") for line in lines if line.startswith("caesura: ")]
    raised = any(line.startswith("Traceback ") for line in lines)
    return (errors or (lines if raised else []) or [""])[-1]
