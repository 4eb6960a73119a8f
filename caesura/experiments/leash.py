"""`leash PID COMMAND...`: becomes the command, which is asked to end when its parent PID is gone.

A killed parent cannot ask its children to end; Linux does it in its place. Elsewhere they go on. It may ask
once for each thread of the parent, so it asks by SIGHUP, of which a training takes the second for the first.
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
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGHUP)
    if os.getppid() != int(parent):  # gone before we asked
        sys.exit(128 + signal.SIGHUP)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
