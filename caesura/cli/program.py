"""The command line. Torch is imported inside the commands, so that --help answers at once."""

from __future__ import annotations

from caesura.signals import QuietInterrupt

with QuietInterrupt():  # around all that takes time before `main` has Ctrl-C
    import sys

    from caesura.cli.commands import app, parser
    from caesura.errors import explain, show_traceback
    from caesura.streams import open_streams, outlive_readers


def main() -> None:
    """Run the program; a user's mistake is one sentence and status 2, never a traceback."""
    with QuietInterrupt() as interrupt:
        open_streams()
        try:
            try:
                status = parser(app)(prog_name="caesura", standalone_mode=False) or 0
            finally:
                sys.stdout.flush()
        except SystemExit:
            raise
        except BaseException as problem:
            interrupt.ending = True
            if "--traceback" in sys.argv:
                sys.excepthook = show_traceback
                raise
            status = explain(problem)
        finally:
            outlive_readers()  # errors of the last flush have been reported already
    sys.exit(status if isinstance(status, int) else 0)
