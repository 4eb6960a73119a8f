"""Training: the same run twice, interrupted and resumed, gives the same bits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from cli.program import write_corpus
from safetensors.torch import load
from training.outcomes import (
    DROPOUT,
    Listener,
    ask_to_end,
    configured,
    in_batch,
    outcome,
    records,
    run,
    stopped,
)
from wording import refuses

from caesura.data.sentences import read_sentences
from caesura.data.vocabulary import Spans, WordVocabulary
from caesura.errors import InputError, Interrupted, TrainingError
from caesura.evaluation.evaluate import evaluate
from caesura.inference import Translator
from caesura.kernels.adam import Adam
from caesura.output import Output
from caesura.training import loop
from caesura.training.checkpoint import Progress, list_checkpoints, read_progress
from caesura.training.loop import train
from caesura.training.prepare import parallel_text
from caesura.training.validation import Validation

pytestmark = pytest.mark.usefixtures("frequent_log")


def test_another_seed_gives_other_weights_and_another_order(corpus: Path, tmp_path: Path) -> None:
    for seed in (1, 2):
        run(configured(corpus, "word", f"training.seed={seed}"), tmp_path / str(seed))
    one, two = outcome(tmp_path / "1"), outcome(tmp_path / "2")
    assert one["state"] != two["state"]
    assert one["metrics"] != two["metrics"]


# Dropout, so that the random state has to come back too; three batches of dev lines.
SETTINGS = (*DROPOUT, "testing.batch_size=2")


@pytest.fixture(scope="module")
def uninterrupted(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What runs with dropout leave that nothing disturbed, by system."""
    outcomes = {}
    with mock.patch.object(loop, "LOG_EVERY", 4):
        for system in ("word", "act-act"):
            folder = tmp_path_factory.mktemp("whole")
            run(configured(corpus, system, *SETTINGS), folder)
            outcomes[system] = outcome(folder)
            assert len(outcomes[system]["validations"]) == 4, "at 4, 8, 12 and 14 updates"
    return outcomes


@pytest.mark.parametrize("system", ["word", "act-act"])
@pytest.mark.parametrize(
    "stops",
    [
        pytest.param((3, 6), id="within lines of the log"),
        pytest.param((4, 8), id="before a validation"),
        pytest.param((5, 10), id="between epochs"),
        pytest.param((14,), id="at the end, before the last validation"),
        pytest.param(tuple(range(1, 15)), id="after every update"),
    ],
)
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(
    corpus: Path,
    tmp_path: Path,
    uninterrupted: dict[str, dict[str, Any]],
    system: str,
    stops: tuple[int, ...],
) -> None:
    torch.rand(3)  # what happened before in the process is of no consequence
    run(configured(corpus, system, *SETTINGS), tmp_path, *stops)
    assert outcome(tmp_path) == uninterrupted[system]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["word", "act-act"])
@pytest.mark.parametrize(
    ("validation", "batch", "where"),
    [
        pytest.param(0, -1, "before its first update here", id="measuring before training"),
        pytest.param(0, 1, "after 4 updates", id="at the beginning of the first validation"),
        pytest.param(1, 2, "after 8 updates", id="in the middle of the second"),
        pytest.param(3, 3, "after 14 updates", id="at the end of the last"),
    ],
)
def test_a_run_that_is_stopped_among_dev_lines_measures_them_again_and_equals_an_uninterrupted_one(
    corpus: Path,
    tmp_path: Path,
    uninterrupted: dict[str, dict[str, Any]],
    system: str,
    validation: int,
    batch: int,
    where: str,
) -> None:
    config, before = configured(corpus, system, *SETTINGS), 2 if system == "act-act" else 1
    with in_batch(3 * (before + validation) + batch, ask_to_end), pytest.raises(Interrupted):
        train(config, tmp_path, listener := Listener())
    assert listener.messages[-1].startswith(f"stopped by the signal SIGTERM {where};")
    assert len(listener.validations) == validation
    log = [record["kind"] for record in records(tmp_path)]
    assert log.count("validation") == validation, "none is logged by halves"
    assert len(list_checkpoints(tmp_path / "checkpoints")) == log.count("start") == (batch > 0)
    run(config, tmp_path)
    assert outcome(tmp_path) == uninterrupted[system]


def test_dropout_draws_anew_at_every_update(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus), tmp_path / "without")
    run(configured(corpus, "word", *DROPOUT), tmp_path / "with")
    assert outcome(tmp_path / "with")["state"] != outcome(tmp_path / "without")["state"]


def test_a_damaged_model_is_not_replaced_by_weights_of_a_later_update(corpus: Path, tmp_path: Path) -> None:
    config, weights = configured(corpus), tmp_path / "model.safetensors"
    stopped(config, tmp_path, 5)
    weights.write_bytes(b"")
    listener = stopped(config, tmp_path, 6)
    [warning] = [text for text in listener.messages if str(weights) in text]
    assert warning.endswith("there is no best model until the next one")
    assert weights.read_bytes() == b""


def test_a_killed_run_goes_on_from_its_last_checkpoint_and_logs_nothing_twice(
    corpus: Path, tmp_path: Path
) -> None:
    config = configured(corpus)
    run(config, tmp_path / "whole")

    class Killed(BaseException):
        pass

    class Killer(Listener):
        def update(self, progress: Progress, loss: float | None) -> None:
            if progress.update == 11:  # after the validation at 8 and lines of the log at 4 and 8
                with (tmp_path / "parts" / "metrics.jsonl").open("a") as log:
                    log.write('{"kind": "tra')
                raise Killed

    with pytest.raises(Killed):
        train(config, tmp_path / "parts", Killer())
    run(config, tmp_path / "parts")
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_the_learning_rate_halves_and_training_ends_as_the_schedule_says(
    corpus: Path, tmp_path: Path
) -> None:
    # At this rate nothing is learned: the first validation is the best one.
    settings = ("training.learning_rate=1e-9", "training.patience=2", "training.max_halvings=3")
    config = configured(corpus, "word", *settings, "training.updates=100", "training.validation_freq=15")
    listener = run(config, tmp_path / "out")
    verdicts = [validation.verdict for validation in listener.validations]
    assert verdicts == ["best", "wait", "halve", "wait", "halve", "wait", "stop"]
    assert listener.rates == [1e-9] * 6 + [0.5e-9] * 4 + [0.25e-9] * 4
    assert "no new best through 3 halvings" in listener.messages[-1]
    header, *rows = [
        line.split("\t") for line in (tmp_path / "out" / "validations.tsv").read_text().splitlines()
    ]
    rates = [row[header.index("learning_rate")] for row in rows]
    assert rates == ["1e-09"] * 3 + ["5e-10"] * 2 + ["2.5e-10"] * 2


def test_the_rate_that_was_lowered_is_the_one_that_adam_uses(corpus: Path, tmp_path: Path) -> None:
    settings = ("training.patience=1", "training.decrease_factor=1e-30", "training.validation_freq=5")
    config = configured(corpus, "word", *settings, "training.learning_rate=1e-9", "training.updates=6")
    saved = []

    class Watcher(Listener):
        def validation(self, validation: Validation, examples: Sequence[tuple[str, Output, str]]) -> None:
            super().validation(validation, examples)
            saved.append(list_checkpoints(tmp_path / "out" / "checkpoints")[-1].read_bytes())

    listener = Watcher()
    train(config, tmp_path / "out", listener)
    assert [v.verdict for v in listener.validations][:2] == ["best", "halve"]
    best = Translator.from_pretrained(tmp_path / "out").state_dict()
    third, last = (load(content) for content in (saved[2], saved[-1]))
    assert any(not third[f"model.{name}"].equal(value) for name, value in best.items())
    assert all(third[f"model.{name}"].equal(last[f"model.{name}"]) for name in best), "a rate of 1e-39"


def test_the_rate_that_is_logged_is_the_one_that_adam_had(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = []
    step = Adam.step

    def watched(self: Adam) -> None:
        used.append(self.param_groups[0]["lr"])
        step(self)

    monkeypatch.setattr(Adam, "step", watched)
    # Lowered after the second validation, while it still rises.
    settings = ("training.patience=1", "training.learning_rate=1e-9", "training.warmup=10")
    config = configured(corpus, "word", *settings, "training.validation_freq=15", "training.updates=12")
    listener = run(config, tmp_path / "whole")
    assert [v.verdict for v in listener.validations][:3] == ["best", "halve", "halve"]
    bases = [1e-9] * 4 + [0.5e-9] * 2 + [0.25e-9] * 2 + [0.125e-9] * 2 + [2**-4 * 1e-9, 2**-4 * 1e-9]
    assert used == pytest.approx([base * min(1, (i + 1) / 10) for i, base in enumerate(bases)])
    assert [v.learning_rate for v in listener.validations] == used[1::2]
    logged = records(tmp_path / "whole", "train")
    assert [r["learning_rate"] for r in logged] == [used[r["update"] - 1] for r in logged]
    run(config, tmp_path / "parts", *range(1, 13))
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    assert used[12:] == used[:12]


@pytest.mark.parametrize(
    ("decay", "shares"),
    [
        (("linear",), [(13 - n) / 12 for n in range(1, 13)]),
        (("inverse-sqrt", "training.warmup=3"), [1 / 3, 2 / 3, *((3 / n) ** 0.5 for n in range(3, 13))]),
    ],
)
def test_a_rate_that_falls_by_itself_is_the_same_after_a_restart(
    corpus: Path, tmp_path: Path, decay: tuple[str, ...], shares: list[float]
) -> None:
    kind, *others = decay
    settings = (f"training.decay={kind}", "training.patience=null", "training.learning_rate=1e-3", *others)
    config = configured(corpus, "word", *settings, "training.validation_freq=15", "training.updates=12")
    listener = run(config, tmp_path / "whole")
    logged = records(tmp_path / "whole", "train")
    assert [r["learning_rate"] for r in logged] == pytest.approx(
        [1e-3 * shares[r["update"] - 1] for r in logged]
    )
    assert {v.verdict for v in listener.validations} <= {"best", "wait"}
    assert listener.messages[-1] == "training finished: 12 updates"
    run(config, tmp_path / "parts", 1, 2, 3, 7, 12)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_the_loss_is_logged_in_its_named_parts(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus, "act"), tmp_path / "out")
    logged = records(tmp_path / "out", "train")
    assert [record["update"] for record in logged] == [1, 2, 4, 5, 8, 10, 12]
    for record in logged:
        assert record["tau"] == 0.1
        assert record["penalty"] != 0
        assert 0 < record["remainder"] < 1
        assert "decoder_penalty" not in record
        whole = record["cross_entropy"] + record["tau"] * record["penalty"]
        assert record["loss"] == pytest.approx(whole, rel=0.05)  # a mean per batch, a mean per symbol
        assert "clipped" not in record
        assert record["segment_length"] >= 1
        assert 0 <= record["live"] < 1
        assert "output_segment_length" not in record


def test_the_log_begins_with_the_segments_that_training_begins_with(corpus: Path, tmp_path: Path) -> None:
    settings = (f"data.dev.src={corpus}/train.de", f"data.dev.trg={corpus}/train.en")
    whole = "training.batch_size=1000"  # all of the text, with the weights before the first update
    run(configured(corpus, "act-act", *settings, whole, "training.updates=1"), tmp_path / "out")
    [start], [record] = (records(tmp_path / "out", kind) for kind in ("start", "train"))
    for prefix in ("", "output_"):
        assert record[f"{prefix}segment_length"] == pytest.approx(start[f"{prefix}segment_length"], rel=1e-12)
        assert record[f"{prefix}live"] == pytest.approx(start[f"{prefix}live"], rel=1e-12)


@pytest.mark.parametrize(("norm", "share"), [(1e-3, 1.0), (1e9, 0.0)])
def test_the_log_says_how_often_gradients_were_clipped(
    corpus: Path, tmp_path: Path, norm: float, share: float
) -> None:
    run(configured(corpus, "word", f"training.clip_grad_norm={norm}"), tmp_path / "out")
    assert {record["clipped"] for record in records(tmp_path / "out", "train")} == {share}


def test_clipping_bounds_the_step(corpus: Path, tmp_path: Path) -> None:
    for norm in ("1e9", "null", "0.1"):
        run(configured(corpus, "word", f"training.clip_grad_norm={norm}"), tmp_path / norm)
    assert outcome(tmp_path / "1e9")["best"] == outcome(tmp_path / "null")["best"]
    assert outcome(tmp_path / "0.1")["best"] != outcome(tmp_path / "null")["best"]


def test_a_changed_training_text_is_refused_when_resuming(tmp_path: Path) -> None:
    write_corpus(tmp_path, train=45, dev=5)
    config = configured(tmp_path)
    stopped(config, tmp_path / "out", 2)
    text = (tmp_path / "train.en").read_text()
    (tmp_path / "train.en").write_text(text.replace("one", "won", 1))
    with refuses(InputError, tmp_path / "out"):
        train(config, tmp_path / "out", Listener())
    (tmp_path / "train.en").write_text(text)
    run(config, tmp_path / "out")


@pytest.mark.parametrize("count", [0, 2, 9])
def test_a_validation_comes_with_the_first_sentences_as_examples(
    corpus: Path, tmp_path: Path, count: int
) -> None:
    listener = run(configured(corpus, "act", f"training.examples={count}"), tmp_path / "out")
    dev = read_sentences(parallel_text(configured(corpus).data.dev), "strict")
    logged = records(tmp_path / "out", "validation")
    assert len(logged) == len(listener.examples) == 4
    for record, examples in zip(logged, listener.examples, strict=True):
        assert [source for source, _, _ in examples] == dev.sources[:count]
        assert [reference for _, _, reference in examples] == dev.references[:count]
        assert ["".join(e["pieces"]) for e in record["examples"]] == dev.sources[:count]
        assert [e["translation"] for e in record["examples"]] == [out.texts[0] for _, out, _ in examples]
        assert "bleu" in record["signatures"]


@pytest.mark.parametrize("updates", [3, 30])
def test_a_loss_that_is_not_finite_ends_training_and_is_never_saved(
    corpus: Path, tmp_path: Path, updates: int
) -> None:
    config = configured(corpus, "word", "training.learning_rate=1e30", f"training.updates={updates}")
    with refuses(TrainingError, "", "update ", "learning_rate"):
        train(config, tmp_path / "out", Listener())
    assert not (tmp_path / "out" / "model.safetensors").exists()
    [checkpoint] = list_checkpoints(tmp_path / "out" / "checkpoints")
    assert read_progress(checkpoint).update == 0, "the last good state"


def test_the_model_in_the_folder_is_the_one_of_the_best_validation(tmp_path: Path) -> None:
    settings = ("training.updates=60", "training.validation_freq=40", "training.learning_rate=2e-2")
    write_corpus(tmp_path, train=45, dev=5, digits=5)
    config = configured(tmp_path, "word", *settings)
    listener = run(config, tmp_path / "out")
    best = [validation for validation in listener.validations if validation.verdict == "best"][-1]
    assert best.bleu == max(validation.bleu for validation in listener.validations) > 0
    model = Translator.from_pretrained(tmp_path / "out")
    dev = read_sentences(parallel_text(config.data.dev), "strict")
    evaluation = evaluate(model, dev.sources, dev.references, search=model.searcher(beam=1))
    assert evaluation.scores.bleu == best.bleu
    assert evaluation.scores.chrf == best.chrf
    assert evaluation.segments.mean == best.segment_length


def test_a_run_reads_the_dev_set_once_and_the_next_run_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    encode_spans = WordVocabulary.encode_spans

    def counted(self: WordVocabulary, text: str) -> tuple[list[int], Spans]:
        read.append(text)
        return encode_spans(self, text)

    write_corpus(tmp_path, train=45, dev=5)
    config = configured(tmp_path, "word")
    monkeypatch.setattr(WordVocabulary, "encode_spans", counted)
    for name in ("a", "b"):
        dev = read_sentences(parallel_text(config.data.dev), "strict")
        listener = run(config, tmp_path / name)
        assert read == dev.sources
        assert len(listener.validations) == 4
        best = [validation for validation in listener.validations if validation.verdict == "best"][-1]
        model = Translator.from_pretrained(tmp_path / name)
        evaluation = evaluate(model, dev.sources, dev.references, search=model.searcher(beam=1))
        assert (best.bleu, best.chrf) == (evaluation.scores.bleu, evaluation.scores.chrf)
        for examples in listener.examples:
            assert [source for source, *_ in examples] == dev.sources[:3]
            assert ["".join(output.segmentation.pieces) for _, output, _ in examples] == dev.sources[:3]
        read.clear()
        for side in (dev.sources, dev.references):
            language = "de" if side is dev.sources else "en"
            (tmp_path / f"dev.{language}").write_text("".join(f"{line}\n" for line in side[:0:-1]))


def test_a_bound_in_epochs_sees_every_sentence_as_often(corpus: Path, tmp_path: Path) -> None:
    listener = run(configured(corpus, "word", "training.updates=null", "training.epochs=2"), tmp_path / "out")
    assert listener.messages[-1] == "training finished: 2 epochs"
    assert listener.validations[-1].sentences == 2 * 45
    assert listener.validations[-1].update == 2 * 5
