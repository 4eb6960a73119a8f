"""What goes wrong by the user's input, said in one sentence."""


class InputError(Exception):
    """Bad input or config. The message names the place and the remedy; the command line exits with status 2."""
