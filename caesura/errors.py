"""What can go wrong, each with the exit status it ends in."""

import signal


class InputError(Exception):
    """Bad input or config: the message names the place and the remedy, the exit status is 2."""


class TrainingError(Exception):
    """Training cannot go on: one sentence, the last good state is on disk, the exit status is 1."""


class Interrupted(Exception):
    """A signal ended the work and the state is saved; the exit status is 128 and the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number
