"""A validation knows the segment length that was asked for, and says where it is off."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import LOOKUP, tiny_model
from rich.console import Console

from caesura import terminal
from caesura.evaluation.evaluate import Evaluation, evaluate
from caesura.inference import Translator
from caesura.terminal import FleetDisplay, TrainingDisplay, validation_line
from caesura.training.card import write_card
from caesura.training.checkpoint import Progress
from caesura.training.validation import Validation, log_record, summarise

READER = {"type": "bigru", "embedding_dim": 4, "size": 3}
CIF = {"reader": READER, "cutter": "cif", "pooling": "weighted", "rate": {"target": 2.0}, "output_dim": 5}
TEXT = ["abababab", "aabb"]


def evaluated(segmenter: dict[str, object]) -> tuple[Translator, Evaluation]:
    model = tiny_model(segmenter).float()
    return model, evaluate(model, TEXT, TEXT, search=model.searcher(beam=1))


def validated(segmenter: dict[str, object], length: float | None = None) -> Validation:
    model, evaluation = evaluated(segmenter)
    if length is not None:
        evaluation = replace(evaluation, segments=replace(evaluation.segments, mean=length))
    return summarise(Progress(), 1e-3, evaluation, "best", model.segmenter)


def test_the_length_that_was_asked_for_is_beside_the_one_that_came_out() -> None:
    made = validated(CIF)
    assert (made.segment_length, made.target_length) == (2.0, 2.0)
    assert made.columns()["target_length"] == 2.0
    assert "segments 2.00, asked 2 (max " in validation_line(vars(made))
    plain = validated(LOOKUP)
    assert plain.target_length is None
    assert "asked" not in validation_line(vars(plain))


def test_a_log_has_it_and_an_earlier_one_without_it_can_be_shown() -> None:
    model, evaluation = evaluated(CIF)
    made = summarise(Progress(), 1e-3, evaluation, "best", model.segmenter)
    record = log_record(made, evaluation, [])
    assert record["target_length"] == evaluation.record()["segments"]["target"] == 2.0
    del record["target_length"]
    assert "asked" not in validation_line(record)


def test_a_validation_off_its_rate_says_so_and_once_more_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    console = Console(file=written, width=200)
    monkeypatch.setattr(terminal, "out", console)
    monkeypatch.setattr(terminal, "err", console)
    display = TrainingDisplay(10)
    display.validation(validated(CIF, 2.05), [])
    assert display.remark is None
    assert "off its rate" not in written.getvalue()
    display.validation(validated(CIF, 2.2), [])
    assert display.remark is not None
    assert "off its rate" in display.remark
    assert written.getvalue().count("off its rate: segments have 2.20 characters where 2 ") == 1
    FleetDisplay().validation("one", vars(validated(CIF, 1.5)))
    assert "one  off its rate: segments have 1.50" in written.getvalue()


def test_a_card_and_what_evaluate_prints_have_both(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, evaluation = evaluated(CIF)
    write_card(tmp_path, model, evaluation, {"update": 1, "sentences": 2, "seconds": 3.0})
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "- segment length: mean 2.000, asked 2, longest " in card
    terminal.evaluation(evaluation, "one", model.segmenter.figures)
    assert "characters, asked 2; longest" in capsys.readouterr().out
