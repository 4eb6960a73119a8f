"""The wording of messages is in messages.txt, by test; tests assert type, place, key and exit status.

With REWRITE_MESSAGES=1, the tests that run write the file instead of comparing with it (CONTRIBUTING.md).
"""

import fcntl
import os
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("messages.txt")
REWRITE = bool(os.environ.get("REWRITE_MESSAGES"))
Sets = dict[str, set[str]]  # by test: its node id without parameters
produced: Sets = defaultdict(set)  # messages
collected: Sets = defaultdict(set)  # node ids with parameters
passed: Sets = defaultdict(set)
folders: list[str] = []  # where this process makes temporary files


def parse(text: str) -> Sets:
    """Messages by test: the lines that are indented below its name."""
    blocks = re.findall(r"^(\S.*)\n((?: {4}.*\n)*)", text, re.MULTILINE)
    return defaultdict(set, {test: {line[4:] for line in lines.splitlines()} for test, lines in blocks})


golden = parse(FILE.read_text(encoding="utf-8"))


def wording(message: object, *varying: object) -> str:
    """Compare a message, line by line, with the file.

    Left out: `varying` parts, temporary folders, and lines of written configs, which move with every new key.
    """
    text = str(message)
    for part in varying:
        text = text.replace(str(part), "…")
    text = re.sub("|".join(rf"{re.escape(folder)}/[\w-]+" for folder in folders), "TMP", text)
    text = re.sub(r"(TMP\S*/config\.yaml):\d+", r"\1:N", text)
    text = "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
    test = re.split(r"\[| \(", os.environ["PYTEST_CURRENT_TEST"])[0]
    for line in text.rstrip("\n").split("\n"):
        assert REWRITE or line in golden[test], f"not in {FILE.name}; REWRITE_MESSAGES=1 adds it: {line}"
        produced[test].add(line)
    return str(message)


@contextmanager
def refuses(kind: type[Exception], start: object = "", *parts: object) -> Iterator[pytest.ExceptionInfo]:
    """Expect an error whose message starts with its place or key and has these parts."""
    with pytest.raises(kind) as caught:
        yield caught
    message = wording(caught.value)
    assert message.startswith(str(start))
    assert [part for part in parts if str(part) not in message] == []


def exists(test: str) -> bool:
    """Whether a test of the file is still there."""
    path, _, name = test.partition("::")
    module = FILE.parents[1] / path
    return module.is_file() and f"def {name}(" in module.read_text(encoding="utf-8")


@pytest.fixture(scope="session", autouse=True)
def _folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    folders.append(str(tmp_path_factory.getbasetemp()))


@pytest.hookimpl(tryfirst=True)  # before any test is deselected
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("lf", False) and not any("::" in argument for argument in config.args):
        for item in items:
            collected[item.nodeid.partition("[")[0]].add(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that has passed with all its parameters must have produced all its messages."""
    yield
    test = item.nodeid.partition("[")[0]
    passed[test].add(item.nodeid)
    if passed[test] == collected[test] and not REWRITE:
        unused = golden[test] - produced[test]
        assert not unused, f"in {FILE.name}, but not produced any more; REWRITE_MESSAGES=1 removes it"


def pytest_sessionfinish() -> None:
    """Each process replaces the messages of its own tests, one process after the other."""
    if REWRITE and passed:
        with FILE.open("r+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            messages = parse(file.read())
            for test in passed:
                old = set() if passed[test] == collected[test] else messages[test]
                messages[test] = produced[test] | old
            tests = sorted(test for test in messages if messages[test] and exists(test))
            file.seek(0)
            file.writelines("\n    ".join([test, *sorted(messages[test])]) + "\n" for test in tests)
            file.truncate()
