"""Lines that come one at a time are answered one at a time."""

import os
import select
import subprocess
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from threading import Event

import pytest
from cli.program import command
from hypothesis import given
from hypothesis import strategies as st

from caesura.cli.streaming import _chunks, _chunks_as_they_come
from caesura.errors import InputError

SECONDS = 60  # that a test waits at most for what should come at once


@given(lines=st.lists(st.integers()), size=st.integers(1, 5), bad=st.booleans())
def test_lines_as_they_come_are_all_lines_in_order(lines: list[int], size: int, bad: bool) -> None:
    def read() -> Iterator[int]:
        yield from lines
        if bad:
            raise InputError("bad")

    for chunks in (_chunks, _chunks_as_they_come):
        taken: list[list[int]] = []
        try:
            taken.extend(chunks(read(), size))
            assert not bad
        except InputError:
            assert bad
        assert [*chain.from_iterable(taken)] == lines
        assert all(0 < len(chunk) <= size for chunk in taken)


def test_a_line_is_passed_on_before_the_next_one_comes() -> None:
    answered = Event()

    def read() -> Iterator[str]:
        yield "first"
        assert answered.wait(SECONDS)
        yield "second"

    chunks = _chunks_as_they_come(read(), 8)
    assert next(chunks) == ["first"]
    answered.set()
    assert [*chunks] == [["second"]]


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--unbuffered"]])
@pytest.mark.parametrize("name", ["translate", "segment"])
def test_a_pipe_that_waits_is_answered_line_by_line(
    models: dict[str, Path], name: str, options: list[str]
) -> None:
    call = command(name, models["act"], *options)
    with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in (b"eins\n", b"neun acht\n", b"\n"):
                process.stdin.write(line)
                process.stdin.flush()
                answer = b""
                while not answer.endswith(b"\n"):
                    assert select.select([process.stdout], [], [], SECONDS)[0], "no answer while it is open"
                    answer += os.read(process.stdout.fileno(), 1 << 16)
                assert answer.count(b"\n") == 1
            process.stdin.close()
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
