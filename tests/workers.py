"""Work for other processes on a block of text in tests, in a module that they import fast."""

import os
import signal
import time

from caesura.data.blocks import Block


def killed(block: Block) -> None:
    """As when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def slow(block: Block) -> int:
    """Ends at once with the first block, and never with others."""
    time.sleep(1000 if block.first > 1 else 0)
    return os.getpid()
