"""`alone PLAN`: trains one member of an experiment and measures it, as a fleet of one."""

from __future__ import annotations

import sys
from typing import Any

from caesura.data.files import read_tail
from caesura.errors import explain
from caesura.experiments.fleet import Limits, run_fleet
from caesura.experiments.plan import read_plan
from caesura.visible import one_line


class _Printed:
    """Prints what happens; validations are in the log of the training."""

    def say(self, text: str) -> None:
        print(one_line(text), flush=True)

    def validation(self, name: str, record: dict[str, Any]) -> None:
        pass

    def running(self, lines: dict[str, str]) -> None:
        pass


def main() -> int:
    """Run the plan on the command line; the exit status."""
    member, budget, measures, call = read_plan(sys.argv[1])
    sys.argv[1:] = call  # results name it
    try:
        run_fleet([member], Limits(budget), _Printed(), measures)
    except Exception as problem:
        return explain(problem)
    if not member.failure.exists():
        return 0
    print(f"caesura: {one_line(read_tail(member.failure))}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
