"""The command line: program.py is where it starts."""
