"""`caesura demo`: small enough for a test, through the processes that it really starts."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from chromium import Browser, needed_browser
from cli.program import Done, caesura, contents, refusal
from experiments import forks
from layout import check_page
from matplotlib.figure import Figure
from sketches import sketch
from wording import refuses, wording

from caesura.data.numerals import HeldOut
from caesura.errors import TrainingError
from caesura.experiments import demo, engine
from caesura.experiments.processes import Children
from caesura.training.checkpoint import list_checkpoints, read_progress
from caesura.training.lock import hold

TINY = demo.Scale(updates=3, time_limit=100, size=100, held_out=HeldOut(4, 4, 4, 4))
ENDLESS = replace(TINY, updates=1_000_000)
# The program with the settings of a test: `python -c PROGRAM demo --out FOLDER`.
PROGRAM = f"""
from functools import partial
from caesura.cli import program as cli
from caesura.data.numerals import HeldOut
from caesura.experiments import demo
from caesura.experiments.demo import Scale
demo.run_demo = partial(demo.run_demo, scale={ENDLESS})
cli.main()
"""


def run(out: Path, scale: demo.Scale = TINY, *options: str) -> Done:
    with mock.patch.object(demo, "run_demo", partial(demo.run_demo, scale=scale)):
        return caesura("demo", "--out", out, *options)


def processes_of(out: Path) -> list[str]:
    """The command lines of the processes that were told this folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it has ended
            continue
        if f"{out}/" in line:
            pids.append(line)
    return pids


@contextmanager
def little() -> Iterator[None]:
    """Trainings in forks, and a report that draws one sentence and moves the cuts of two."""
    with (
        mock.patch.object(Children, "start", forks.start),
        mock.patch.object(demo, "AnalysisSettings", partial(demo.AnalysisSettings, drawn=1, moved=2)),
    ):
        yield


@pytest.fixture(scope="module")
def first(models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A folder in which the demo ran, and how it ended; not to be written to.

    It trains in forks, which find loaded what training `models` has loaded.
    """
    out = tmp_path_factory.mktemp("demo") / "out"
    with little(), mock.patch.object(Figure, "savefig", sketch):
        return out, run(out)


def test_it_shows_all_models_in_one_table(first: tuple[Path, Done]) -> None:
    _, done = first
    assert done.err == ""
    for system in ("char", "act", "cif", "entropy"):
        [line] = [line for line in done.lines if line.startswith(f"│ {system}, seed 1")]
        cells = [cell.strip() for cell in line.strip("│").split("│")]
        assert cells[1:4] == ["0.0%"] * 3
        assert re.fullmatch(r"\d{3},\d{3}", cells[4])
        assert re.fullmatch(r"\d\.\d\d \(max \d+\)", cells[5])
        assert re.fullmatch(r"\d\.\d\d", cells[6])
        assert re.fullmatch(r"3 of 3, \d+s", cells[7])
    assert "4 held-out German numbers, greedy" in done.out
    assert done.out.count(", seed 1: finished after 3 updates, ") == 4
    assert "trivial cuts reach: every character 0." in done.out
    assert "epsilon is 0.3 here and 0.01 in the paper: docs/log.md" in done.out


def test_it_shows_validations_examples_and_how_the_segments_moved(first: tuple[Path, Done]) -> None:
    out, done = first
    sources = [line.split("\t")[0] for line in (out / "corpus" / "test.tsv").read_text().splitlines()]
    for system in demo.SYSTEMS:
        [_] = [line for line in done.lines if re.match(rf" *{system} .* BLEU .* segments", line)]
        examples = [line for line in done.lines if re.match(rf" *{system}  .*  → ", line)]
        cuts = [line.split()[1].replace("|", "") for line in examples]
        assert cuts == ([] if system == "char" else sources[:3])
    assert sum(line.startswith(f"{source} → ") for line in done.lines for source in sources) == 3
    assert done.out.index("How they cut numbers") < done.out.index("held-out German numbers, greedy")
    assert re.search(r"segment length as it trained, seed 1: \d\.\d\d → \d\.\d\d\n", done.out)
    assert f"The same as a plot: {out}/trajectories.png and {out}/trajectories.svg\n" in done.out
    assert (out / "trajectories.png").read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in (out / "trajectories.svg").read_bytes()
    assert f"on one page: {out}/report/report.html" in done.out
    assert f" explore {out}/char-1 {out}/act-1 {out}/cif-1 {out}/entropy-1 --open\n" in done.out
    page = (out / "report" / "report.html").read_text(encoding="utf-8")
    assert "How four models cut the same text" in page
    assert "char-1, entropy-1 score no symbols" in page


@pytest.mark.slow
def test_its_report_opens_in_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SYSTEMS", {name: demo.SYSTEMS[name] for name in ("cif", "entropy")})
    with Browser(needed_browser()) as browser:
        with little():
            run(tmp_path)
        page = tmp_path / "report" / "report.html"
        for screen in ({}, {"dark": True}, {"width": 390, "phone": True}):
            browser.open(page, **screen)  # type: ignore[arg-type]
            check_page(browser, page)


def test_less_than_what_is_wanted_is_said_and_status_1(first: tuple[Path, Done]) -> None:
    _, done = first
    assert done.status == 1
    for system, share in {"char": 90, "act": 90, "cif": 99, "entropy": 99}.items():
        assert f"{system}, seed 1, after 3 of 3 updates: 0.0% right, at least {share}% wanted.\n" in done.out


@pytest.mark.parametrize(
    ("system", "exact", "length", "f1", "count"),
    [
        ("char", 0.9, 1.0, 0.28, 0),
        ("act", 0.89, 1.0, 0.0, 1),
        ("cif", 0.99, 4.0, 0.0, 0),
        ("cif", 0.989, 3.99, 0.0, 2),
        ("entropy", 0.99, 1.0, 0.8, 0),
        ("entropy", 0.98, 5.0, 0.79, 2),
    ],
)
def test_what_is_wanted_of_each_model(
    tmp_path: Path, system: str, exact: float, length: float, f1: float, count: int
) -> None:
    test = mock.Mock(boundaries={"model": mock.Mock(f1=f1)})
    test.scores.exact, test.segments.mean = exact, length
    tested = demo.Tested(demo.model_of(system, 1, tmp_path), mock.Mock(), {"test": test}, 1.0)
    assert len(tested.missing()) == count


def test_what_is_shown_says_which_models_are_missing(tmp_path: Path) -> None:
    models = [demo.model_of(system, 1, tmp_path) for system in demo.SYSTEMS]
    tested = [demo.Tested(model, mock.Mock(), {}, 1.0) for model in models[2:]]
    assert demo._missing(tested, models) == "2 of 4 models: no validation yet of char, seed 1; act, seed 1"
    assert demo._missing(tested, models[2:]) == ""


def test_two_models_train_at_a_time_within_one_time_limit(first: tuple[Path, Done], tmp_path: Path) -> None:
    """The last of them start first: theirs are the cuts to see where the time is too short for all."""
    assert max(int(path.read_text()) for path in first[0].glob("*.beside")) == demo.AT_ONCE == 2
    with mock.patch.object(engine, "run_fleet", return_value=False) as fleet:
        demo.Demo(tmp_path, [demo.model_of(system, 1, tmp_path) for system in demo.SYSTEMS]).train(100)
    models, limits, *_ = fleet.call_args.args
    assert [model.system for model in models] == ["entropy", "cif", "act", "char"]
    assert (limits.parallel, limits.budget) == (2, None)
    assert limits.time_limit == pytest.approx(100, abs=1)


def test_again_in_the_same_folder_nothing_is_trained_and_nothing_changes(first: tuple[Path, Done]) -> None:
    out, done = first
    before, written = contents(out), (out / "corpus" / "train.tsv").stat().st_mtime_ns
    with mock.patch.object(Children, "start", side_effect=AssertionError("trained again")):
        again = run(out, replace(TINY, demanding=False))
    assert (again.status, again.err) == (0, "")
    assert contents(out) == before
    assert (out / "corpus" / "train.tsv").stat().st_mtime_ns == written
    assert "after 3 of 3 updates" not in again.out
    table = [line for line in done.lines if line.startswith("│")]
    assert [line for line in again.lines if line.startswith("│")] == table


@pytest.mark.parametrize("name", ["corpus/dev.tsv", "act-1.yaml", "entropy-1.yaml"])
def test_a_folder_of_another_version_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("of old\n")
    assert wording(refusal(run(tmp_path))).startswith(f"{tmp_path}/{name}: ")
    assert contents(tmp_path) == {name: b"of old\n"}


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.touch()
    assert wording(refusal(run(out))).startswith(f"{out}: ")


def test_a_second_demo_in_the_folder_of_a_running_one_is_refused_and_leaves_its_logs(tmp_path: Path) -> None:
    logs = {f"{system}-1.log": b"running\n" for system in demo.SYSTEMS}
    for name, text in logs.items():
        (tmp_path / name).write_bytes(text)
    with hold(tmp_path, print):
        message = refusal(run(tmp_path))
    assert message.startswith(f"{tmp_path}: process {os.getpid()} on ")
    assert {name: (tmp_path / name).read_bytes() for name in logs} == logs


@pytest.mark.slow
def test_a_machine_too_slow_for_a_validation_is_told_so(tmp_path: Path) -> None:
    done = run(tmp_path, replace(TINY, time_limit=1e-6))
    assert (done.status, done.err) == (1, "")
    assert done.lines[-1] == (
        "entropy, seed 1, after 0 of 3 updates: no validation yet, so there is nothing to test; "
        "stopped by the time limit, and the same command goes on."
    )
    assert "held-out" not in done.out


@pytest.mark.slow
def test_a_child_that_fails_ends_the_demo_at_once_and_the_other(tmp_path: Path) -> None:
    (tmp_path / "cif-1").touch()  # where its folder should be
    done = run(tmp_path, ENDLESS)
    assert done.status == 1
    assert re.fullmatch(r"caesura: training cif, seed 1 failed: .*/cif-1: .* \(status 2\) .*\n", done.err)
    assert done.err.count("caesura: ") == 1
    assert f"(all of it: {tmp_path}/cif-1.log)" in done.err
    assert processes_of(tmp_path) == []


def test_a_failure_of_an_earlier_call_does_not_end_this_one(tmp_path: Path) -> None:
    models = [demo.model_of(system, 1, tmp_path) for system in demo.SYSTEMS]
    models[0].failure.write_text("no room")
    with mock.patch.object(engine, "run_fleet", lambda *arguments: arguments[-1]()):
        demo.Demo(tmp_path, models).train(100)
    models[0].failure.write_text("no room")
    with refuses(TrainingError, "training char, seed 1 ", "no room"):
        demo.Demo(tmp_path, models).settled()


@pytest.mark.slow
@pytest.mark.usefixtures("no_ignored_signals")
def test_a_signal_stops_the_children_once_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """SIGTERM; Ctrl-C is in tests/experiments/test_two_presses.py."""
    out = tmp_path / "out"
    running = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "demo", "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    logs = [out / "cif-1.log", out / "entropy-1.log"]  # these start first
    while not all(log.exists() and "kernels:" in log.read_text() for log in logs):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(processes_of(out)) == 2 or sys.platform != "linux"
    os.killpg(running.pid, signal.SIGTERM)  # as the terminal does: to all in the foreground
    output, err = running.communicate(timeout=300)
    assert (running.returncode, err) == (143, "")
    assert output.endswith("stopped; the same command goes on from here\n")
    assert processes_of(out) == []
    for log in logs:
        updates = read_progress(list_checkpoints(log.with_suffix("") / "checkpoints")[-1]).update
        assert f"stopped by the signal SIGTERM after {updates} updates" in log.read_text()


@pytest.mark.usefixtures("no_ignored_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_second_request_that_is_no_ctrl_c_kills_nobody(tmp_path: Path, number: int) -> None:
    with Children() as children:
        children.start("patient", [sys.executable, "-c", "import time; time.sleep(600)"], tmp_path / "log")
        for _ in range(3):
            os.kill(os.getpid(), number)
        assert children.signal == number
    assert children.running["patient"].returncode == -signal.SIGTERM
