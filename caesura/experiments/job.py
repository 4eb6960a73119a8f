"""`job END LOG OUTPUT COMMAND...`: runs a command for a launcher on another machine.

Its output is added to LOG; its standard output goes to OUTPUT instead unless that is "". Its exit status (or
negative signal) is written to END, which is empty until then.
"""

import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path


def main() -> None:
    """Run what the command line says."""
    end, log, output, *command = sys.argv[1:]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # the command gets them too, like all processes of a job
    Path(end).write_text("")  # the job may run again, after a preemption
    with ExitStack() as stack:
        errors = stack.enter_context(open(log, "ab", buffering=0))
        errors.write(f"$ {shlex.join(command)}\n".encode(errors="surrogateescape"))
        printed = stack.enter_context(open(output, "wb")) if output else errors
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed, stderr=errors)
        status = child.wait()
    Path(end).write_text(str(status))
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
