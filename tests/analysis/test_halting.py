"""The halting unit's scores, as a model gives them and as one adds them up by hand."""

import json
import math
from collections.abc import Iterable
from pathlib import Path

import pytest
from analysis.cuts import cut
from helpers import ACT, tiny_model

from caesura.analysis.halting import (
    HaltingStatistics,
    HaltingTally,
    halting_trace,
    has_halting_unit,
    history,
)
from caesura.evaluation.evaluate import figure_values
from caesura.output import Segmentation

TEXTS = ["abcde", "hgfedcba", "a", "bbbb"]


CIF = {
    "type": "parts",
    "reader": {"type": "gru", "embedding_dim": 4, "size": 5},
    "cutter": {"type": "cif"},
    "pooling": {"type": "weighted"},
    "rate": {"target": 2.5},
}


def counted_in(cuts: Iterable[Segmentation]) -> HaltingStatistics | None:
    tally = HaltingTally()
    for one in cuts:
        tally.add(one)
    return tally.result()


def test_the_running_sum_starts_again_after_a_halt() -> None:
    model = tiny_model(ACT | {"epsilon": 0.2})
    trace = halting_trace(model, "ab cd", cut("ab| |cd", [0.5, 0.75, 0.875, 0.25, 0.5]))
    assert trace is not None
    assert trace.labels == ["a", "b", "␣", "c", "d"]
    assert trace.sums == [0.5, 1.25, 0.875, 0.25, 0.75]
    assert trace.halts == [False, True, True, False, True]
    assert trace.threshold == pytest.approx(0.8)


def test_a_models_trace_halts_where_its_sum_reaches_the_threshold() -> None:
    model = tiny_model(ACT)
    for text, output in zip(TEXTS, model.process(TEXTS, None), strict=True):
        trace = halting_trace(model, text, output.segmentation)
        assert trace is not None
        # Every symbol but </s>, which is left out, halts by the sum alone.
        assert trace.halts == [total >= trace.threshold for total in trace.sums]


def test_scores_are_counted_by_what_they_do() -> None:
    counts = counted_in([cut("ab|c", [0.04, 0.96, 1.0]), cut("d", [0.5])])
    assert counts is not None
    assert (counts.symbols, counts.live) == (4, 0.25)
    assert counts.mean == pytest.approx(0.625)
    assert [i for i, n in enumerate(counts.going_on) if n] == [0]
    assert {i: n for i, n in enumerate(counts.halting) if n} == {10: 1, 19: 2}


@pytest.mark.parametrize("learns", [True, False])
def test_the_share_is_the_evaluations(learns: bool) -> None:
    model = tiny_model(ACT | {"learn_halting": learns, "tau": 0.0, "halting_bias": -0.3})
    segmentations = [output.segmentation for output in model.process(TEXTS, None)]
    counted = counted_in(segmentations)
    assert counted is not None
    assert counted.live == figure_values(segmentations).get("live")
    assert (counted.live is not None) == counted.learns == learns
    assert sum(counted.going_on) > 0
    if learns:
        assert counted.live == sum(counted.going_on) / counted.symbols


def test_what_cif_has_too_much_at_an_end_counts_for_the_next_segment() -> None:
    model = tiny_model(CIF)
    assert not has_halting_unit(model.segmenter)
    for text, output in zip(TEXTS, model.process(TEXTS, None), strict=True):
        cut = output.segmentation
        trace = halting_trace(model, text, cut)
        assert trace is not None
        assert trace.sums is not None
        assert trace.threshold == 1.0
        assert sum(trace.scores) == pytest.approx(max(1, round(len(text) / 2.5)), abs=1e-4)
        for total, end in zip(trace.sums[:-1], trace.halts, strict=False):
            assert (total >= 1 - 1e-6) == end  # at the last character </s> ends the last segment
        assert trace.sums[-1] == pytest.approx(1.0, abs=1e-4)


def test_scores_that_are_not_summed_have_no_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(ACT)
    monkeypatch.setattr(model.segmenter, "sums_to", None)
    trace = halting_trace(model, "ab", cut("a|b", [0.5, 0.75]))
    assert trace is not None
    assert (trace.scores, trace.sums, trace.threshold) == ([0.5, 0.75], None, None)


def test_a_model_without_a_halting_unit_has_none() -> None:
    model = tiny_model()
    [output] = model.process(["abc"], None)
    assert counted_in([output.segmentation]) is None
    assert halting_trace(model, "abc", output.segmentation) is None


@pytest.mark.parametrize("live", ["live", "gradient_share"])  # today, and in earlier versions
def test_the_history_of_a_run(tmp_path: Path, live: str) -> None:
    records = [
        {"kind": "start", "update": 0, "segment_length": 2.0, live: 0.5},
        {"kind": "train", "update": 5, "sentences": 50, "penalty": -0.1},
        {"kind": "validation", "update": 5, "sentences": 50, "segment_length": 3.0, "bleu": 7.5,
         "exact": 0.25, live: 0.75},
    ]  # fmt: skip
    lines = [json.dumps(record) for record in records]
    (tmp_path / "metrics.jsonl").write_text("\n".join([*lines, '{"kind": "tr']))
    epochs = history(tmp_path)
    assert epochs is not None
    assert (epochs.sentences, epochs.segment_length) == ([0.0, 50.0], [2.0, 3.0])
    assert math.isnan(epochs.bleu[0])
    assert math.isnan(epochs.exact[0])
    assert (epochs.bleu[1], epochs.exact[1]) == (7.5, 0.25)
    assert epochs.live == [0.5, 0.75]
    assert (epochs.penalty_at, epochs.penalty) == ([50.0], [-0.1])


@pytest.mark.parametrize("content", [None, "", "\n", '{"kind": "start"}\n', "[]\nnull\n"])
def test_a_folder_without_a_log_has_no_history(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    assert history(tmp_path) is None
