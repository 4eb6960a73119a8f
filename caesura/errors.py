"""The errors of the program, and the exit status of each."""

import errno
import os
import signal
import sys
from types import TracebackType

from caesura.visible import each_line, one_line


class _Refusal(Exception):
    """One sentence per line, each made safe to print: it may quote text by a stranger."""

    def __init__(self, *sentences: str) -> None:
        super().__init__("\n".join(map(one_line, sentences)))


class InputError(_Refusal):
    """Bad input or config: the message names the place and the remedy, the exit status is 2."""


class TrainingError(_Refusal):
    """Training cannot go on: one sentence, the last good state is on disk, the exit status is 1."""


class Interrupted(Exception):
    """A signal ended the work and the state is saved; the exit status is 128 and the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


# Of errors that have no class of their own: memory of a CPU, sizes beyond all memory, and what takes a GPU's
# memory beside torch's allocator (graphs, libraries, kernels) and fails if other programs hold the rest.
_TOO_MUCH = (
    "DefaultCPUAllocator: ",
    "Storage size calculation overflowed",
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "Triton Error [CUDA]: out of memory",
)


def out_of_memory(problem: BaseException) -> bool:
    """Whether memory was short; during the capture of a graph, that is the context of another error."""
    kinds = {type(error).__name__ for error in (problem, problem.__context__)}  # without importing torch
    return not kinds.isdisjoint(("MemoryError", "OutOfMemoryError")) or any(
        mark in str(problem) for mark in _TOO_MUCH
    )


def missing_extra(what: str, extra: str) -> InputError:
    """`what` needs packages that are not installed; with the command for a clone, as no index has Caesura."""
    return InputError(f"{what} needs an extra, in the clone: .venv/bin/pip install -e '.[{extra}]'")


def no_file(path: str | os.PathLike[str]) -> str:
    """The problem with a path that does not lead to a file."""
    return f"{path} is a directory, not a file" if os.path.isdir(path) else f"no file {path}"


def show_traceback(_: type[BaseException], problem: BaseException, __: TracebackType | None) -> None:
    """Like `sys.excepthook`, with text by strangers made safe to print."""
    import traceback

    print(each_line("".join(traceback.format_exception(problem))), end="", file=sys.stderr)


def explain(problem: BaseException) -> int:
    """Print the problem on the error stream; return its exit status."""
    if hasattr(problem, "show") and hasattr(problem, "exit_code"):  # click's own: a wrong option or argument
        if hasattr(problem, "message") and type(problem).__name__ != "NoArgsIsHelpError":  # which is the help
            problem.message = one_line(problem.message)
        problem.show()
        return int(problem.exit_code)
    if isinstance(problem, KeyboardInterrupt) or type(problem).__name__ == "Abort":
        return 130
    if isinstance(problem, Interrupted):
        return 128 + problem.number
    if isinstance(problem, BrokenPipeError):  # the reader has enough, as `head` does
        return 1
    unwritable = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO)
    if isinstance(problem, InputError | TrainingError):
        message = str(problem)
    elif isinstance(problem, OSError) and problem.errno in unwritable:
        message = f"{one_line(problem.filename or 'output')}: {problem.strerror}"
    elif out_of_memory(problem):
        remedy = "make the model or its batches smaller, or end other programs that use this memory"
        message = f"there is not enough memory; {remedy} (--traceback shows where)"
    else:
        message = f"{type(problem).__name__}: {one_line(problem)} (--traceback shows where)"
    print(f"caesura: {message}", file=sys.stderr)
    return 2 if isinstance(problem, InputError) else 1
