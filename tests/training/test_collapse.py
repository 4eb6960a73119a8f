"""Segments that collapse are told of once, with a setting that the segmenter has."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import ACT, ACT_DECODER, LOOKUP, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from training.outcomes import configured, records, run

from caesura import terminal
from caesura.evaluation.evaluate import Evaluation, evaluate
from caesura.inference import Translator
from caesura.output import Segmentation
from caesura.segmenters.cutters.hard import Given
from caesura.segmenters.parts import Segmenter
from caesura.segmenters.pooling import Mean
from caesura.segmenters.readers.lookup import Lookup
from caesura.terminal import FleetDisplay
from caesura.training.collapse import SINGLE, SINGLE_OVER, CutCounts, collapse, departure, watch

READER = {"type": "gru", "embedding_dim": 4, "size": 3}
KINDS = {"scaling": "cif", "pi": "act", "logits": "act", "ratio": "act", "quantile": "act"}
counts = st.builds(CutCounts, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**5))
before = st.sampled_from(["", "single", "long"])


def cut(*lengths: int) -> Segmentation:
    """A sentence of characters in segments of these lengths."""
    ends = [i == length - 1 for length in lengths for i in range(length)]
    return Segmentation(["x" * n for n in lengths], [*lengths], ends, [1.0] * len(ends), None)


def parts(cutter: str | dict[str, Any], **options: Any) -> dict[str, Any]:
    pooling = "weighted" if cutter in ("act", "cif") else "mean"
    return {"reader": READER, "cutter": cutter, "pooling": pooling, **options}


def as_if_cut(model: Translator, *cuts: Segmentation, targets: bool = False) -> Evaluation:
    """An evaluation in which these are how sources, or translations, were cut."""
    text = ["abab"] * len(cuts)
    evaluation = evaluate(model, text, text, search=model.searcher(beam=1))
    name = "targets" if targets else "segmentation"
    outputs = [
        replace(output, **{name: [row] if targets else row})
        for output, row in zip(evaluation.outputs, cuts, strict=True)
    ]
    return replace(evaluation, outputs=outputs)


@given(counts, before)
def test_what_is_called_collapsed_is(cuts: CutCounts, before: str) -> None:
    kind = collapse(cuts, before)
    if kind == "single":
        assert cuts.length <= (SINGLE_OVER if before == "single" else SINGLE)
    if kind == "long":
        assert cuts.length > SINGLE
        assert cuts.symbols >= 8 * cuts.sentences
        assert cuts.length >= 15 or cuts.segments <= 2 * cuts.sentences
    healthy = 1.2 < cuts.length < 15 and cuts.segments > 2 * cuts.sentences
    assert not (healthy and kind)
    assert collapse(CutCounts(0, 0, 0), before) == ""


@given(counts, before, st.integers(2, 9))
def test_the_size_of_the_text_does_not_matter(cuts: CutCounts, before: str, times: int) -> None:
    larger = CutCounts(times * cuts.symbols, times * cuts.segments, times * cuts.sentences)
    if cuts.segments:
        assert collapse(cuts, before) == collapse(larger, before)


@given(counts, before)
def test_what_holds_goes_on_holding(cuts: CutCounts, before: str) -> None:
    kind = collapse(cuts, before)
    assert collapse(cuts, kind) == kind
    if fresh := collapse(cuts, ""):
        assert collapse(cuts, fresh) == fresh


@given(st.floats(1, 100), st.floats(1, 100))
def test_off_a_rate(length: float, target: float) -> None:
    error = abs(length / target - 1)
    assert departure(length, target, "") == ("off" if error > 0.05 else "")
    assert departure(length, target, "off") == ("off" if error > 0.025 else "")


def test_counts_are_of_text() -> None:
    assert CutCounts.of([cut(2, 3), cut(), cut(1)]) == CutCounts(6, 3, 2)
    assert CutCounts.of([]).length == 0.0


@given(st.lists(st.sampled_from([1, 3, 30]), min_size=1, max_size=12))
def test_each_collapse_is_told_once_until_it_is_over(lengths: list[int]) -> None:
    state: dict[str, str] = {}
    noticed = []
    for length in lengths:
        state, notices = watch(ENCODER, CUT[length], state)
        noticed.append(bool(notices))
    changes = [a != b and b != 3 for a, b in zip([3, *lengths], lengths, strict=False)]
    assert noticed == changes


ENCODER = tiny_model(ACT).float()
CUT = {n: as_if_cut(ENCODER, cut(*[n] * (60 // n)), cut(*[n] * (60 // n))) for n in (1, 3, 30)}


@pytest.mark.parametrize(
    ("segmenter", "learns"),
    [
        (LOOKUP, False),
        (ACT, True),
        (ACT | {"learn_halting": False, "tau": 0.0}, False),
        (parts("every"), False),
        (parts({"type": "fixed", "k": 3}), False),
        (parts("act"), True),
    ],
)
def test_only_cuts_that_are_learned_can_collapse(segmenter: dict[str, Any], learns: bool) -> None:
    model = tiny_model(segmenter).float()
    assert model.segmenter.learns == learns
    for length in (1, 30):
        whole = cut(*[length] * (60 // length))
        evaluation = replace(CUT[length], outputs=[replace(o, segmentation=whole) for o in CUT[1].outputs])
        state, notices = watch(model, evaluation, {})
        assert bool(notices) == bool(state) == learns


def test_segments_that_are_almost_single_characters_have_collapsed() -> None:
    assert collapse(CutCounts(107_000, 100_000, 1_500), "") == "single"


def test_of_cuts_by_entropy_the_rate_of_the_text_is_named() -> None:
    model = Translator.from_pretrained(Path(__file__).parents[1] / "folders" / "golden" / "format7-entropy")
    evaluation = as_if_cut(model, cut(9, 9))
    for mean, way in ((9.0, "lower"), (1.0, "raise")):
        _, [notice] = watch(model, replace(evaluation, segments=replace(evaluation.segments, mean=mean)), {})
        assert f"{way} data.cuts.target" in notice


def test_given_cuts_are_not_learned() -> None:
    assert not Segmenter(Lookup(9, 4), Given(), Mean()).learns


def test_the_settings_that_are_named_are_there() -> None:
    single, long = (watch(ENCODER, CUT[length], {})[1][0] for length in (1, 30))
    assert "lower model.segmenter.tau" in single
    assert "raise model.segmenter.tau" in long
    assert "model.segmenter.rate" in single
    assert "tau" not in ENCODER.segmenter.remedy(True, tau=0.0), "below 0 it would reward length"
    for by, cutter in KINDS.items():
        model = tiny_model(parts(cutter, rate={"target": 4.0, "by": by})).float()
        control = model.segmenter.control
        assert control is not None
        for short in (True, False):
            remedy = model.segmenter.remedy(short, 1.0)
            assert ("rate.weight" in remedy) == (control.weight is not None)
            assert ("rate.gain" in remedy) == (control.tau is not None)
            assert "segmenter.tau" not in remedy
            if by == "scaling":  # it can only be off where sentences are shorter than a segment
                assert "lower model.segmenter.rate.target" in remedy
    rated = tiny_model(parts("act", rate={"target": 4.0})).float()
    off = replace(CUT[1], target=4.0, segments=replace(CUT[1].segments, mean=1.0))
    state, notices = watch(rated, off, {})
    assert len(notices) == 1
    assert watch(rated, off, state) == (state, [])


def test_the_segments_of_a_decoder_collapse_too() -> None:
    model = tiny_model(decoder=ACT_DECODER).float()
    for length, way in ((1, "lower"), (30, "raise")):
        evaluation = as_if_cut(model, cut(*[length] * (60 // length)), targets=True)
        state, notices = watch(model, evaluation, {})
        assert [*state] == ["decoder"]
        assert f"{way} model.decoder.tau" in notices[0]
        assert notices[0].startswith("output segments ")


def test_a_run_says_so_at_the_validation_and_in_its_log(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configured(corpus, "act", "model.segmenter.halting_bias=9", "training.updates=9")
    listener = run(config, tmp_path, 6)
    first, *later = listener.validations
    assert len(first.notices) == 1
    assert "model.segmenter.tau" in first.notices[0]
    assert later
    assert not any(validation.notices for validation in later), "resumed or not"
    logged = records(tmp_path, "validation")[0]
    assert logged["notices"] == first.notices
    assert "notices" not in (tmp_path / "validations.tsv").read_text()
    written = io.StringIO()
    for name in ("out", "err"):
        monkeypatch.setattr(terminal, name, Console(file=written, width=300))
    FleetDisplay().validation("one", logged)
    assert f"one  {first.notices[0]}" in written.getvalue()
