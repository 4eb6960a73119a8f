"""The command line: program.py is where it starts."""


def main() -> None:
    """Start the program; nothing is imported before, so that Ctrl-C is quiet from the first import on."""
    from caesura.cli.program import main as start

    start()
