"""Attention as the decoder's steps give it, and shares of it that one can add up by hand."""

import pytest
import torch
from analysis.cuts import cut
from helpers import ACT, LOOKUP, tiny_model

from caesura.analysis.attention import AttentionMap, AttentionTally, attention_maps, attention_statistics
from caesura.data.batching import collate
from caesura.data.vocabulary import BOS

TEXTS, TARGETS = ["abcdefgh", "ab", "hgfeaab"], ["abc", "edcba", ""]


@pytest.mark.parametrize("segmenter", [LOOKUP, ACT])
def test_a_map_is_that_of_a_step_by_step_run(segmenter: dict) -> None:
    model = tiny_model(segmenter)
    cuts = [output.segmentation for output in model.process(TEXTS, None)]
    maps = list(attention_maps(model, TEXTS, TARGETS, cuts))
    for text, target, one in zip(TEXTS, TARGETS, maps, strict=True):
        batch = collate([(model.src_vocabulary.encode(text), None)])
        _, encoded = model.encode(batch.src, batch.src_lengths)
        state = model.decoder.start(encoded)
        rows = []
        for symbol in [BOS, *model.trg_vocabulary.encode(target)]:
            step, state = model.decoder.step(state, torch.tensor([[symbol]]))
            assert step.attention is not None
            rows.append(step.attention[0, 0].tolist())
        assert len(one.target) == len(rows) == len(target) + 1
        assert len(one.source) == len(rows[0])
        for ours, theirs in zip(one.weights, rows, strict=True):
            assert ours == pytest.approx(theirs, abs=1e-12)
            assert sum(ours) == pytest.approx(1)


def test_shares_of_a_known_attention() -> None:
    """ab c: the first characters are a and c; two target symbols."""
    attention = AttentionMap(
        ["a", "b", "␣", "c", "∎"], ["x", "∎"], [[0.5, 0.1, 0.1, 0.2, 0.1], [0.0, 0.3, 0.0, 0.7, 0.0]]
    )
    tally = AttentionTally()
    tally.add(attention, "ab c", cut("a|b| |c"))
    s = tally.result("references")
    assert s is not None
    assert s.first == pytest.approx((0.7 + 0.7) / 2)
    assert s.first_uniform == pytest.approx(2 / 5)
    assert (s.space, s.space_uniform) == (pytest.approx(0.05), pytest.approx(1 / 5))
    assert (s.end, s.end_uniform) == (pytest.approx(0.05), pytest.approx(1 / 5))
    # Even, each step would get 0.4 of the two rows: a and c, at place 1, got 1.4 of 0.8; b 0.4 of 0.4.
    assert s.place.values[:2] == pytest.approx([1.4 / 0.8, 1.0])
    assert s.place.counts[:3] == [2, 1, 0]


def test_a_segment_that_holds_a_first_character_counts_as_first() -> None:
    attention = AttentionMap(["a", "b␣c∎"], ["∎"], [[0.25, 0.75]])
    tally = AttentionTally()
    tally.add(attention, "ab c", cut("a|b c"))
    s = tally.result("translations")
    assert s is not None
    assert (s.first, s.first_uniform, s.end) == (1.0, 1.0, 0.0)


def test_nothing_is_said_of_nothing() -> None:
    assert attention_statistics(tiny_model(), [], [], []) is None
