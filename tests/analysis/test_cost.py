"""The arithmetic of a sentence, by hand on sizes that fit on a page."""

import pytest
from helpers import ACT, ACT_DECODER, LOOKUP, tiny_model

from caesura.analysis.cost import flops, mean_flops, part_sizes
from caesura.layers.recurrent import gru_flops


def test_a_gru_step_is_six_products() -> None:
    assert gru_flops(4, 3) == 2 * 3 * (3 * 4 + 3 * 3) == 126


def test_a_sentence_by_hand() -> None:
    """T 5, S 3, U 2; E 4, A 3, D 5; H 3 a direction; memory 6, attention 5, decoder 6, embedding 4, V 9."""
    cost = flops(tiny_model(ACT), symbols=5, segments=3, targets=2)
    act = 5 * (gru_flops(4, 3) + 2 * 3) + 3 * 2 * 3 * 5
    encoder = 3 * 2 * gru_flops(5, 3)
    step = 2 * 6 * 5 + 3 * 2 * 5 + 3 * 2 * 6 + gru_flops(4 + 6, 6) + 2 * 6 * 9
    decoder = 3 * 2 * 6 * 5 + 2 * step
    assert cost == {"segmenter": act, "encoder": encoder, "decoder": decoder}
    assert cost == {"segmenter": 750, "encoder": 864, "decoder": 1800}


def test_a_lookup_costs_nothing() -> None:
    cost = flops(tiny_model(LOOKUP), 5, 5, 1)
    assert cost is not None
    assert cost["segmenter"] == 0


def test_parts_are_counted_by_themselves_and_one_without_a_formula_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = {"type": "bigru", "embedding_dim": 4, "size": 3}
    cif = {"reader": reader, "cutter": "cif", "pooling": "weighted", "rate": {"target": 2.0}, "output_dim": 5}
    model = tiny_model({"type": "parts"} | cif)
    cost = flops(model, symbols=5, segments=3, targets=2)
    assert cost is not None
    assert cost["segmenter"] == 5 * 2 * gru_flops(4, 3) + 5 * 2 * 6 + 3 * 2 * 6 * 5
    monkeypatch.setattr(model.encoder, "flops", lambda segments: None)
    assert flops(model, symbols=5, segments=3, targets=2) is None


def test_the_mean_is_over_sentences_and_not_of_mean_sizes() -> None:
    model = tiny_model(LOOKUP)
    total, means = mean_flops(model, [(2, 2, 4), (4, 4, 8)])
    alone = [flops(model, *sizes) for sizes in ((2, 2, 4), (4, 4, 8))]
    assert total is not None
    assert total["decoder"] == pytest.approx(sum(one["decoder"] for one in alone if one) / 2)
    assert total["decoder"] > flops(model, 3, 3, 6)["decoder"]  # type: ignore[index]
    assert means == {"T": 3.0, "S": 3.0, "U": 6.0}


def test_no_sentence_no_cost() -> None:
    assert mean_flops(tiny_model(), []) == (None, {"T": 0.0, "S": 0.0, "U": 0.0})


def test_the_parts_are_the_whole() -> None:
    model = tiny_model(ACT)
    assert sum(part_sizes(model).values()) == model.parameter_count()


def test_a_decoder_that_cuts_moves_once_a_segment() -> None:
    model = tiny_model(LOOKUP, decoder=ACT_DECODER)
    cost = flops(model, symbols=3, segments=3, targets=7, written=2)
    move = 2 * 6 * 5 + 3 * 2 * 5 + 3 * 2 * 6 + gru_flops(4 + 6, 6) + 2 * (2 * 6 * 3)  # P and Q: 6 and 3
    each = gru_flops(4, 3) + 2 * 3 + 2 * 3 * 5 + 2 * 5 * 9
    assert cost is not None
    assert cost["decoder"] == 3 * 2 * 6 * 5 + 2 * move + 7 * each
