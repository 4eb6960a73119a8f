"""One explanation of a sentence is what its parts are when each is computed by itself."""

import math
from typing import Any

import pytest
from explorer.kinds import CIF, KINDS, SHORT
from helpers import tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st

import caesura
from caesura.analysis.attention import attention_maps
from caesura.analysis.explain import explain
from caesura.analysis.flips import flips
from caesura.analysis.halting import halting_trace
from caesura.inference import Translator

MODELS = {
    name: tiny_model(segmenter, decoder=decoder, encoder=encoder, testing=SHORT)
    for name, (segmenter, decoder, encoder) in KINDS.items()
}


@settings(max_examples=20)
@given(text=st.text("abcdefgh ", min_size=1, max_size=12), name=st.sampled_from([*KINDS]), data=st.data())
def test_it_is_the_sum_of_its_parts(text: str, name: str, data: Any) -> None:
    model, beam = MODELS[name], data.draw(st.sampled_from([1, 2]))
    cuts = None
    if model.segmenter.takes_cuts and len(text) > 1:
        cuts = data.draw(st.none() | st.dictionaries(st.integers(1, len(text) - 1), st.sampled_from([1, -1])))
    one = explain(model, text, cuts, reference="ab", beam=beam)
    [output] = model.process([text], model.searcher(beam), cuts=[cuts])
    assert one.segmentation.pieces == output.segmentation.pieces
    assert one.translation == output.best
    target = output.targets[0] if output.targets else None
    assert (one.target and one.target.pieces) == (target and target.pieces)
    assert one.log_probability == pytest.approx(output.hypotheses[0].log_prob, abs=1e-9)
    assert one.finished == output.hypotheses[0].finished
    assert one.reference == pytest.approx(model.score([text], ["ab"], [cuts])[0])
    assert one.halting == halting_trace(model, text, one.segmentation)
    if cuts is None and model.trg_vocabulary.encode(one.translation) == [*output.hypotheses[0].symbols[:-1]]:
        [seen] = attention_maps(model, [text], [one.translation], [output.segmentation])
        assert one.attention is not None
        assert one.attention.source == seen.source
        size = len(one.attention.weights)
        assert one.attention.target == seen.target[:size]
        for row, other in zip(one.attention.weights, seen.weights, strict=False):
            assert row == pytest.approx(other)


def test_a_translation_that_is_given_is_explained() -> None:
    model = MODELS["writes"]
    one = explain(model, "abc", target="ab")
    assert (one.translation, one.finished) == ("ab", True)
    assert one.log_probability == pytest.approx(model.score(["abc"], ["ab"])[0])
    assert one.target == model.segment_targets(["abc"], ["ab"])[0]
    assert one.attention is not None
    assert len(one.attention.weights) == 3
    assert explain(model, "abc", target="").target_spans == []


def test_an_empty_line_has_one_translation() -> None:
    model = MODELS["cif"]
    one = explain(model, "", reference="a")
    assert (one.translation, one.log_probability, one.reference) == ("", 0.0, -math.inf)
    assert one.segmentation.pieces == []
    assert explain(model, "", target="a").log_probability == -math.inf


def test_the_source_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, calls = tiny_model(CIF, testing=SHORT), []
    for part in ("segmenter", "encoder", "decoder"):
        module = getattr(model, part)
        module.register_forward_hook(lambda *_, name=part: calls.append(name))
    explain(model, "abcd", beam=1)
    assert calls == ["segmenter", "encoder"]  # the search takes steps, and keeps where they looked
    calls.clear()
    explain(model, "abcd", beam=2, reference="ab")
    assert calls == ["segmenter", "encoder", "decoder"]


@pytest.mark.parametrize("beam", [1, 3])
def test_a_check_is_called_before_each_step_and_may_end_the_search(beam: int) -> None:
    model: Translator = tiny_model(CIF, testing={"max_output_ratio": 0.0, "max_output_extra": 9})
    calls = 0

    def check() -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        explain(model, "abcd", beam=beam, check=check)
    assert calls == 2
    free = explain(model, "abcd", beam=beam)
    calls = 5
    assert explain(model, "abcd", beam=beam, check=check) == free
    assert calls - 5 >= len(free.target_spans)


def test_a_check_may_end_flips() -> None:
    def check() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        flips(MODELS["cif"], "abcd", "ab", check=check)


def test_a_check_comes_before_the_forced_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caesura.analysis.explain._forced", None)  # is not reached

    def check() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        explain(MODELS["cif"], "abcd", target="ab", reference="abc", check=check)


def test_flips_are_checked_often_and_stay_the_same() -> None:
    checks: list[None] = []
    source = "abcdefgh" * 15
    free = flips(MODELS["cif"], source, "abc", rounds=0)
    one = flips(MODELS["cif"], source, "abc", rounds=0, check=lambda: checks.append(None))
    assert len(checks) > 119 * 120 / 2000  # symbols of all rows
    assert one.flipped == pytest.approx(free.flipped, abs=1e-12)
    assert (one.cuts, one.hard) == (free.cuts, free.hard)
    assert one.pull
    assert free.pull
    assert one.pull.gradient == pytest.approx(free.pull.gradient, abs=1e-12)


def test_it_is_public_and_takes_one_sentence() -> None:
    assert caesura.explain is explain
    with pytest.raises(TypeError, match="one sentence"):
        explain(MODELS["cif"], ["abc"])  # type: ignore[arg-type]
