"""The plan of a command that trains and measures one member, as one word of a command line."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from caesura.experiments.outcome import Measure, Member


def write_plan(member: Member, budget: float | None, measures: Sequence[Measure]) -> str:
    """A member, its seconds of training and its measures; and this call, which results name."""
    content = {
        "member": [member.name, str(member.config), member.settings, str(member.folder)],
        "budget": budget,
        "measures": [[measure.name, measure.command(member), measure.doing] for measure in measures],
        "call": sys.argv[1:],
    }
    return json.dumps(content)


def read_plan(text: str) -> tuple[Member, float | None, list[Measure], list[str]]:
    """The same parts from the text of a plan."""
    plan = json.loads(text)
    name, config, settings, folder = plan["member"]
    member = Member(name, Path(config), tuple(settings), Path(folder))
    measures = [Measure(name, partial(_words, words), doing) for name, words, doing in plan["measures"]]
    return member, plan["budget"], measures, plan["call"]


def _words(words: Sequence[str] | None, _: Member) -> Sequence[str] | None:
    return words
