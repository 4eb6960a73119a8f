"""What long work shows: bars at a terminal, and elsewhere lines now and then."""

import io
import math
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from cli.program import caesura, write_corpus

from caesura import terminal
from caesura.training.checkpoint import Progress


@pytest.mark.slow
@pytest.mark.usefixtures("sketched")
def test_a_log_gets_a_line_now_and_then_of_work_that_prints_nothing_else(
    models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path, train=5, dev=5, digits=5)
    text = ("--src", tmp_path / "dev.de", "--trg", tmp_path / "dev.en")
    few = ("--sample", 2, "--moved", 1, "--bpe", 40)
    words = ("compare", models["word"], models["act"], *text, "--out", tmp_path / "report", *few)
    monkeypatch.setattr(terminal._Lines, "every", math.inf)
    assert caesura(*words).err == ""
    monkeypatch.setattr(terminal._Lines, "every", 0.0)
    done = caesura(*words)
    assert done.status == 0, done.err
    texts = done.err.splitlines()
    for line in (rf"translating with {models['act']}: 5 of 5", r"analysing act: .+, [\d,]+ sentences"):
        assert any(re.fullmatch(rf"{line} after \S+", text) for text in texts), texts


def test_who_is_watched_says_at_once_what_it_begins_and_then_a_line_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, written = iter([0.0, 0.9, 1.0, 1.9]), io.StringIO()
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(terminal, "err", terminal.Screen(file=written, width=80))
    monkeypatch.setenv(terminal.WATCHED, "1")
    lines = terminal._Lines("reading [b]")
    for word in ("soon", "now", "again"):
        lines(word)
    assert written.getvalue() == "reading [b]\nnow\n"


def test_without_a_terminal_reading_a_long_text_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    written, now = io.StringIO(), [0.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(terminal, "err", terminal.Screen(file=written, width=200))
    with terminal.TrainingDisplay(100) as display:
        for now[0], done in ((31.0, 100_000), (41.0, 200_000), (71.0, 500_000), (91.0, 700_000)):
            display.working("numbering the training text", done, 1_000_000)
        display.working("measuring the first segments", 5)
    first, second = [line.split(": ")[1] for line in written.getvalue().splitlines()]
    assert first == "100,000 of about 1,000,000 lines after 31s"
    assert second == "500,000 of about 1,000,000 lines, about 50s left after 1m11s"


def test_at_a_terminal_the_bar_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal._Lines, "every", 0.0)
    written = io.StringIO()
    monkeypatch.setattr(terminal, "err", terminal.Screen(file=written, force_terminal=True, width=80))
    with terminal.counting("reading", 3) as count, terminal.stages("drawing") as stage:
        count(2)
        stage("gates", 7, 9)
    with terminal.telling("the report") as tell:
        tell("[b]")
    assert "the report: [b]" in written.getvalue()
    assert "after" not in written.getvalue()
    monkeypatch.setattr(terminal, "err", terminal.Screen(file=written, width=80))
    with terminal.stages("drawing") as stage:
        stage("gates", 7, 9)
    assert "drawing: gates, 7 of 9 sentences after" in written.getvalue()
    with terminal.counting("reading", 3) as count:
        count(2)
        count(1)
    assert re.search(r"reading: 2 of 3 after \S+\nreading: 3 of 3 after \S+\n$", written.getvalue())


def test_without_a_terminal_a_training_says_how_far_it_is_before_its_first_validation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, written = iter([0.0, 29.0, 30.0]), io.StringIO()
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(terminal, "err", terminal.Screen(file=written, width=120))
    display = terminal.TrainingDisplay(8_000)
    for updates in (1, 2):
        display.update(Progress(updates, sentences=64 * updates, since_validation=64 * updates), 3.0)
    far = "epoch 1, update 2  cross-entropy 3.000, next validation: 128 of 8,000 sentences"
    assert written.getvalue() == f"{far} after 30s\n"
