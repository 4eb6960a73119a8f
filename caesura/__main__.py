"""`python -m caesura` is the program `caesura`."""

from caesura.cli.program import main

if __name__ == "__main__":
    main()
