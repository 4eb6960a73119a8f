"""`caesura train`: it resumes, stops by a time limit or a signal, and refuses what has changed."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest
from cli.program import AT_ONCE, GERMAN, caesura, command, contents, refusal, write_config
from wording import wording

from caesura.terminal import TrainingDisplay
from caesura.training.checkpoint import Progress, list_checkpoints, read_progress


@pytest.fixture
def config(corpus: Path, tmp_path: Path) -> Path:
    """A config of a word model; as the one of the fixture `models` it trains for 60 updates."""
    return write_config(tmp_path / "word.yaml", "word", corpus)


def updates(folder: Path) -> int:
    return read_progress(list_checkpoints(folder / "checkpoints")[-1]).update


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_model_folder_is_readable_by_hand(models: dict[str, Path]) -> None:
    folder = models["act"]
    assert {path.name for path in folder.iterdir()} >= {
        "README.md",
        "checkpoints",
        "config.yaml",
        "metrics.jsonl",
        "model.safetensors",
        "src.vocab.json",
        "trg.vocab.json",
        "validations.tsv",
    }
    assert [*folder.rglob("*.part")] == []
    card = (folder / "README.md").read_text()
    for words in ("train.de", "BLEU|nrefs:1", "seed 1", "caesura train", "torch"):
        assert words in card
    assert "epsilon: 0.01" in (folder / "config.yaml").read_text(), "defaults are written out"


def test_the_saved_config_trains_the_same_model_again(models: dict[str, Path], tmp_path: Path) -> None:
    done = caesura("train", models["word"] / "config.yaml", "--out", tmp_path / "again")
    assert done.status == 0
    assert weights(tmp_path / "again") == weights(models["word"])


@pytest.mark.parametrize(
    ("bias", "learnt", "message"),
    [
        (20, "true", "has 1.00 characters per segment, which leave the halting unit next to no gradient"),
        (1, "true", None),
        (-9, "true", "which a larger model.segmenter.tau would shorten"),
        (20, "false", None),
    ],
)
def test_who_trains_act_enc_is_told_at_the_end_when_it_has_come_to_one_of_its_ends(
    corpus: Path, tmp_path: Path, bias: float, learnt: str, message: str | None
) -> None:
    config = write_config(tmp_path / "act.yaml", "act", corpus)
    segmenter = {"tau": 0, "halting_bias": bias, "learn_halting": learnt}
    settings = ["training.updates=2", *(f"model.segmenter.{key}={value}" for key, value in segmenter.items())]
    words = [word for setting in settings for word in ("--set", setting)]
    done = caesura("train", config, "--out", tmp_path / "out", *words)
    assert done.status == 0, done.err
    remarks = [line for line in done.lines if line.startswith("the best model has")]
    assert len(remarks) == (message is not None)
    assert all(message in line for line in remarks if message)


def test_a_time_limit_stops_with_status_0_and_the_same_command_goes_on(
    models: dict[str, Path], config: Path, tmp_path: Path
) -> None:
    given = ("train", config, "--out", tmp_path / "out")
    for limit in (AT_ONCE, "0.01", "0.0002m"):
        done = caesura(*given, "--time-limit", limit)
        assert (done.status, done.err) == (0, "")
        assert "stopped by the time limit after" in done.out
        assert "the same command goes on from here" in done.out
    before = updates(tmp_path / "out")
    done = caesura(*given)
    assert f"going on from update {before} " in done.out
    assert "training finished: 60 updates" in done.out
    assert weights(tmp_path / "out") == weights(models["word"])


def test_a_finished_run_stays_as_it_is(config: Path, tmp_path: Path) -> None:
    given = ("train", config, "--out", tmp_path / "out", "--set", "training.updates=3")
    assert caesura(*given).status == 0
    before = contents(tmp_path / "out")
    done = caesura(*given)
    assert "training finished: 3 updates" in done.out
    after = contents(tmp_path / "out")
    assert {name for name in before | after if before.get(name) != after.get(name)} <= {
        "checkpoints/000000003.safetensors"  # its clock
    }


def test_the_model_folder_is_named_after_the_config_by_default(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (
        "no model yet: the first validation, after" in caesura("train", config, "--time-limit", AT_ONCE).out
    )
    assert updates(tmp_path / "runs" / "word") == 0


def test_a_changed_config_is_refused_with_the_differing_keys(config: Path, tmp_path: Path) -> None:
    given = ("train", config, "--out", tmp_path / "out")
    caesura(*given, "--time-limit", AT_ONCE)
    before = contents(tmp_path / "out")
    changes = ("--set", "training.seed=2", "--set", "model.encoder.hidden_size=14")
    message = wording(refusal(caesura(*given, *changes)))
    assert message.startswith(f"{tmp_path}/out: ")
    assert "model.encoder.hidden_size: " in message
    assert "training.seed: " in message
    assert contents(tmp_path / "out") == before


def test_a_validation_shows_scores_segments_and_examples(corpus: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "act.yaml", "act", corpus)
    bound = ("--set", "training.updates=2", "--set", "training.examples=2")
    done = caesura("train", config, "--out", tmp_path / "out", *bound)
    [line] = [line for line in done.lines if "BLEU" in line]
    for name in ("20 sentences", "BLEU", "chrF2", "segments 1.", "(max 2)", "live", "best"):
        assert name in line
    examples = done.lines[done.lines.index(line) + 1 :][:4]
    sources = (corpus / "dev.de").read_text().split("\n")
    assert [e.strip().replace("|", "").replace("␣", " ") for e in examples[::2]] == sources[:2]
    assert all(e.strip().startswith("→") for e in examples[1::2])


@pytest.mark.slow
@pytest.mark.usefixtures("no_ignored_signals")
def test_ctrl_c_ends_training_with_status_130_and_the_state_saved(config: Path, tmp_path: Path) -> None:
    endless = ("train", config, "--out", tmp_path / "out", "--set", "training.updates=1000000")
    running = subprocess.Popen(command(*endless), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    validations = tmp_path / "out" / "validations.tsv"
    deadline = time.monotonic() + 300
    while not (validations.exists() and validations.read_text().count("\n") > 1):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=300)
    assert (running.returncode, err) == (130, "")
    reached = updates(tmp_path / "out")
    assert reached >= 20
    assert f"stopped by the signal SIGINT after {reached} updates; the same command goes on" in out
    done = caesura(*endless, "--time-limit", "0.1s")
    assert done.status == 0
    assert f"going on from update {reached} " in done.out
    assert updates(tmp_path / "out") >= reached  # how far it comes depends on the machine


@pytest.mark.usefixtures("no_ignored_signals")
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_at_any_update_loses_nothing(
    models: dict[str, Path], config: Path, tmp_path: Path, number: int, status: int
) -> None:
    def update(display: TrainingDisplay, progress: Progress, loss: float | None) -> None:
        if progress.update == 33:
            os.kill(os.getpid(), number)

    given = ("train", config, "--out", tmp_path / "out")
    with mock.patch.object(TrainingDisplay, "update", update):
        done = caesura(*given)
    assert (done.status, done.err) == (status, "")
    assert f"stopped by the signal {signal.Signals(number).name} after 33 updates" in done.out
    assert caesura(*given).status == 0
    assert weights(tmp_path / "out") == weights(models["word"])


def test_a_loss_that_is_not_finite_is_one_sentence_and_status_1(config: Path, tmp_path: Path) -> None:
    done = caesura("train", config, "--out", tmp_path / "out", "--set", "training.learning_rate=1e30")
    assert done.status == 1
    assert wording(done.err).startswith("caesura: ")
    assert done.err.count("\n") == 1
    assert f" {tmp_path}/out/checkpoints" in done.err


def test_help_and_version_do_not_import_torch() -> None:
    script = (
        "import sys; sys.argv = ['caesura', {!r}]\n"
        "from caesura.cli.program import main\n"
        "try: main()\n"
        "finally: print([m for m in ('torch', 'numpy', 'pydantic') if m in sys.modules])\n"
    )
    for option, shown in (("--help", "translate"), ("--version", "caesura 0.")):
        done = subprocess.run(
            [*command()[:1], "-c", script.format(option)], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert shown in done.stdout
        assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "name", ["train", "translate", "segment", "evaluate", "compare", "demo", "reproduce"]
)
def test_every_command_explains_itself(name: str) -> None:
    done = caesura(name, "--help")
    assert (done.status, done.err) == (0, "")
    assert f"Usage: caesura {name}" in done.out


@pytest.mark.slow
def test_a_reader_that_leaves_causes_no_noise(models: dict[str, Path], tmp_path: Path) -> None:
    many = tmp_path / "many"
    many.write_text("".join(f"{word} eins zwei drei\n" for word in GERMAN * 2000), encoding="utf-8")
    running = subprocess.Popen(
        command("segment", models["word"], many), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stdout.readline().startswith(b"eins|")
    running.stdout.close()
    assert running.stderr is not None
    assert running.stderr.read() == b""
    running.stderr.close()
    assert running.wait(timeout=300) in (0, 1)


def test_text_goes_out_as_utf8_whatever_the_locale_says(models: dict[str, Path]) -> None:
    done = caesura("segment", models["char"], stdin="fünf ☃\n".encode())  # to a stream that is ASCII at first
    assert (done.status, done.out) == (0, "f|ü|n|f|␣|☃\n")


def test_at_a_terminal_each_line_is_answered_before_the_next_is_read(models: dict[str, Path]) -> None:
    answered = []

    class Keyboard(io.BytesIO):
        def readline(self, size: int | None = -1) -> bytes:
            answered.append(sys.stdout.buffer.getvalue())
            return super().readline(size)

    terminal = io.TextIOWrapper(Keyboard(b"neun\nvier\n"))
    terminal.isatty = lambda: True
    assert caesura("translate", models["word"], stdin=terminal).status == 0
    assert answered == [b"", b"nine\n", b"nine\nfour\n"]


def test_metrics_are_json_lines_with_the_loss_in_its_parts(models: dict[str, Path]) -> None:
    records = [json.loads(line) for line in (models["word"] / "metrics.jsonl").read_text().splitlines()]
    logged = [record for record in records if record["kind"] == "train"]
    assert [record["update"] for record in logged] == [1, 2, 5, 10, 20, 50]
    for record in logged:
        assert {"cross_entropy", "tau", "loss", "learning_rate"} <= set(record)
        assert "segment_length" not in record, "in symbols, which are not cut here"
