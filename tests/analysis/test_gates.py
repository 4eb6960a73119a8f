"""The gates are those of the encoder: its states come out of them."""

import math

import pytest
import torch
from analysis.cuts import cut
from helpers import ACT, LOOKUP, tiny_model
from torch import nn

from caesura.analysis.characters import units
from caesura.analysis.figures import gate_profiles_figure
from caesura.analysis.gates import (
    AROUND,
    GateMap,
    GateRow,
    GateTally,
    encoder_gates,
    gate_maps,
    gate_statistics,
    gru_gates,
)
from caesura.analysis.means import ENOUGH
from caesura.data.batching import collate
from caesura.encoders.recurrent import RecurrentEncoder

TEXTS = ["abcdefgh", "ab", "hgfeaab"]


@pytest.mark.parametrize(("layers", "options"), [(1, {}), (3, {}), (3, {"residual": True, "norm": True})])
def test_the_states_are_the_encoders_own(layers: int, options: dict[str, bool]) -> None:
    torch.manual_seed(1)
    encoder = RecurrentEncoder(4, 3, layers, **options).double().eval()
    vectors, lengths = torch.randn(3, 6, 4, dtype=torch.float64), torch.tensor([6, 2, 5])
    states, gates = encoder_gates(encoder, vectors, lengths)
    expected = encoder(vectors, lengths).states
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(states[row, :length], expected[row, :length], rtol=1e-12, atol=1e-12)
    assert len(gates) == 4 * layers


def test_gates_by_hand() -> None:
    """One unit, without weights: the gates are the sigmoids of their biases, the state follows from them."""
    gru = nn.GRU(1, 1, batch_first=True).double()
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.zero_()
        gru.bias_ih_l0.copy_(torch.tensor([math.log(3), -math.log(4), 1.0]))  # r = 3/4, z = 1/5
    states, resets, updates = gru_gates(
        gru, torch.zeros(1, 2, 1).double(), torch.tensor([2]), backwards=False
    )
    assert resets.tolist() == [pytest.approx([0.75, 0.75])]
    assert updates.tolist() == [pytest.approx([0.8, 0.8])]  # the paper's convention: 1 - z
    first = 0.8 * math.tanh(1)
    assert states.flatten().tolist() == pytest.approx([first, 0.8 * math.tanh(1) + 0.2 * first])


@pytest.mark.parametrize("segmenter", [LOOKUP, ACT])
def test_a_sentence_has_the_same_gates_alone_and_in_company(segmenter: dict) -> None:
    model = tiny_model(segmenter)
    cuts = [output.segmentation for output in model.process(TEXTS, None)]
    together = list(gate_maps(model, TEXTS, cuts))
    assert len(together) == len(TEXTS)
    for text, segmented, gates in zip(TEXTS, cuts, together, strict=True):
        [alone] = gate_maps(model, [text], [segmented])
        assert alone.labels == gates.labels
        for a, b in zip(alone.rows, gates.rows, strict=True):
            assert a.values == pytest.approx(b.values, abs=1e-12)
        batch = collate([(model.src_vocabulary.encode(text), None)])
        segments = model.segmenter(batch.src, batch.src_lengths)
        assert len(gates.labels) == int(segments.lengths[0])


def test_averages_by_hand() -> None:
    values = [0.1, 0.2, 0.9, 0.3, 0.5, 0.7, 0.4]
    shown = "a|b| |c|d|e|."
    tally = GateTally()
    row = GateRow(1, "forward", "reset", [*values, 0.0])  # </s> is a step, but no part of the text
    tally.add(GateMap(list("ab cde.∎"), [row]), units("ab cde.", cut(shown)), gold=[4])
    gates = tally.result()
    assert gates is not None
    assert (gates.sentences, gates.steps) == (1, 7)
    assert (gates.gold_boundaries, gates.gold_given) == (1, 1)
    [p] = gates.profiles
    assert p.overall == pytest.approx(sum(values) / 7)
    assert p.space.values[AROUND - 2 : AROUND + 2] == pytest.approx([0.1, 0.2, 0.9, 0.3])
    assert p.space.counts == [0, 1, 1, 1, 1, 1, 1]
    assert p.punctuation.values[AROUND] == 0.4
    assert p.place.values[:3] == pytest.approx([(0.1 + 0.3) / 2, (0.2 + 0.5) / 2, 0.7])
    assert p.inside == pytest.approx((0.2 + 0.5 + 0.7) / 3)
    assert p.gold.values[AROUND - 1 : AROUND + 2] == pytest.approx([0.3, 0.5, 0.7])


def test_a_gold_boundary_at_the_beginning_of_a_word_is_no_boundary_inside_it() -> None:
    model = tiny_model()
    [output] = model.process(["abc"], None)
    gates = gate_statistics(model, ["abc"], [output.segmentation], [[0]])
    assert gates is not None
    assert gates.gold_boundaries == 0
    assert all(map(math.isnan, gates.profiles[0].gold.values))


def test_a_gold_boundary_that_the_model_did_not_cut_is_counted_but_not_measured() -> None:
    row = GateRow(1, "forward", "reset", [0.2, 0.6])
    tally = GateTally()
    tally.add(GateMap(["ab", "cd"], [row]), units("abcd", cut("ab|cd")), gold={1, 2})
    gates = tally.result()
    assert gates is not None
    assert (gates.gold_boundaries, gates.gold_given) == (1, 2)
    assert gates.profiles[0].gold.values[AROUND] == 0.6


def test_a_segment_with_a_space_is_the_first_of_its_word() -> None:
    row = GateRow(1, "forward", "reset", [0.2, 0.6, 0.9])
    tally = GateTally()
    tally.add(GateMap(["in", "␣gr", "u"], [row]), units("in gru", cut("in| gr|u")))
    gates = tally.result()
    assert gates is not None
    [p] = gates.profiles
    assert p.place.values[0] == pytest.approx((0.2 + 0.6) / 2)
    assert p.inside == 0.9


def test_points_of_few_observations_are_kept_but_not_drawn() -> None:
    row = GateRow(1, "forward", "reset", [0.2, 0.4])
    tally = GateTally()
    for _ in range(ENOUGH):
        tally.add(GateMap(["a", "b"], [row]), units("ab", cut("a|b")))
    tally.add(
        GateMap(["a", "b", "c"], [GateRow(1, "forward", "reset", [0.2, 0.4, 0.9])]),
        units("abc", cut("a|b|c")),
    )
    gates = tally.result()
    assert gates is not None
    place = gates.profiles[0].place
    assert place.counts[:3] == [ENOUGH + 1, ENOUGH + 1, 1]
    assert place.values[2] == 0.9
    reset = gate_profiles_figure(gates).axes[0]
    drawn = list(reset.lines[0].get_ydata())
    assert drawn[:2] == pytest.approx([0.2, 0.4])
    assert all(map(math.isnan, drawn[2:]))
