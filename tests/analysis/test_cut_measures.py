"""What is measured of cuts without a report: boundaries by hand, nulls for what is no number."""

import json
import math
from dataclasses import replace

import pytest
from analysis.test_flips import FIXED
from helpers import ACT, LOOKUP, tiny_model
from wording import refuses

from caesura.analysis import cuts as module
from caesura.analysis.cuts import measure_cuts
from caesura.analysis.lines import Line
from caesura.data.vocabulary import CharVocabulary
from caesura.errors import InputError
from caesura.inference import Translator


def spaced_model(segmenter: dict) -> Translator:
    model = tiny_model(segmenter)
    model.src_vocabulary = CharVocabulary([*"abcdefg "])
    return model


def test_measures_of_cuts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Line(1, "ab cd", "a"), Line(2, ""), Line(3, "abcd ef", "b"), Line(4, "ab")]
    measures = measure_cuts(spaced_model(FIXED), lines, "text", moved=20)
    record = json.loads(json.dumps(measures.record(), allow_nan=False))
    assert [*record] == ["sentences", "fidelity", "flips", "boundaries", "surprisal", "cuts"]
    assert (record["surprisal"], record["cuts"]["lines"], record["cuts"]["gaps"]) == (None, 3, 4 + 6 + 1)
    assert (record["sentences"], record["fidelity"]) == (2, None)
    assert record["flips"]["gaps"] == 10
    scores = record["boundaries"][
        "white space"
    ]  # ab| c|d and ab|cd| e|f: 5 cuts at 11 places, both words right
    assert scores == pytest.approx(
        {"f1": 4 / 7, "precision": 0.4, "recall": 1.0, "chance": 2 * (10 / 11) / 7}
    )
    none = measure_cuts(spaced_model(FIXED), lines, "text", moved=0).record()
    assert (none["sentences"], none["flips"], none["boundaries"]) == (0, None, record["boundaries"])
    assert measure_cuts(tiny_model(LOOKUP), [Line(1, "abc", "a")], "text", 20).record()["boundaries"] == {}
    monkeypatch.setattr(module, "LINES", 1)
    assert measure_cuts(spaced_model(FIXED), lines[2:], "text", moved=20).moved != measures.moved
    with refuses(InputError, "text: "):
        measure_cuts(tiny_model(FIXED), [Line(1, " ")], "text", 20)


def test_what_is_no_number_is_null() -> None:
    measures = measure_cuts(spaced_model(ACT), [Line(1, "ab cd", "a")], "text", 1)
    assert measures.moved is not None
    assert measures.moved.fidelity is not None
    broken = replace(measures.moved.fidelity, true_sum=math.nan)
    record = replace(measures, moved=replace(measures.moved, fidelity=broken)).record()
    assert record["fidelity"]["true_sum"] is None
    assert record["fidelity"]["cosine_error"] is None
