"""What goes wrong by the user's input, said in one sentence."""


class InputError(Exception):
    """Bad input or config: the message names the place and the remedy, the exit status is 2."""
