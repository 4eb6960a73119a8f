"""`leash PID COMMAND...`: becomes the command, which is asked to end when its parent PID is gone.

A killed parent cannot ask its children to end; Linux does it in its place, once for each thread that the
parent had. Elsewhere they go on. They hear that request even where the parent was started to ignore it.
"""

import ctypes
import os
import signal
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run what the command line says."""
    parent, *command = sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # gone before we asked
        sys.exit(128 + signal.SIGTERM)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
