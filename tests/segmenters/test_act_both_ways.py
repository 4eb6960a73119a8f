"""ACT-ENC in both directions: two runs of the listing, the second under the cuts of the first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from combinations import VOCABULARY, act_layer
from helpers import ACT, ACT_DECODER, close, ragged, sentences, tiny_model
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from wording import refuses

from caesura.analysis.fidelity import fidelity
from caesura.analysis.flips import flips
from caesura.data.batching import collate
from caesura.inference import Translator
from caesura.segmenters.act import ActSegmenter
from caesura.segmenters.act_listing import act_enc, act_enc_both_ways
from caesura.segmenters.base import Segments
from caesura.segmenters.rate import Rate

BOTH_WAYS = ACT | {"bidirectional": True}


def layer(seed: int = 0, **options: Any) -> ActSegmenter:
    return act_layer(seed, **({"bidirectional": True} | options))


@pytest.mark.parametrize("vocab_size", [VOCABULARY, 500])  # input projections by table, and one per symbol
@pytest.mark.parametrize("seed", range(2))
def test_it_is_the_listing_in_outputs_and_in_every_gradient(seed: int, vocab_size: int) -> None:
    made, generator = layer(seed, vocab_size=vocab_size), torch.Generator().manual_seed(seed)
    symbols, lengths = ragged([7, 1, 12, 2, 9], vocab_size, generator)
    segments = made(symbols, lengths)
    rows = [act_enc_both_ways(made, row[:n]) for row, n in zip(symbols, lengths.tolist(), strict=True)]
    sizes = [len(row.vectors) for row in rows]
    assert any(1 < size < n for size, n in zip(sizes, lengths.tolist(), strict=True))
    assert segments.lengths.tolist() == sizes
    probe = torch.randn(segments.vectors.shape, generator=generator, dtype=torch.float64)
    for b, row in enumerate(rows):
        close(segments.vectors[b, : sizes[b]], row.vectors, 1e-12, "vectors")
        assert not segments.vectors[b, sizes[b] :].any()
        close(segments.penalty[b], row.penalty, 1e-12, "penalty")
    names, parameters = zip(*made.named_parameters(), strict=True)
    actual = torch.autograd.grad((segments.vectors * probe).sum() + segments.penalty.sum(), parameters)
    literal = sum((row.vectors * probe[b, : sizes[b]]).sum() + row.penalty for b, row in enumerate(rows))
    expected = torch.autograd.grad(literal, parameters)
    for name, ours, theirs in zip(names, actual, expected, strict=True):
        close(ours, theirs, what=name)


def test_its_gradient_is_the_slope() -> None:
    made = layer(1, vocab_size=5, embedding_dim=2, act_size=2, output_dim=1)
    symbols, lengths = torch.tensor([[0, 3, 1, 4, 2], [4, 1, 0, 0, 0]]), torch.tensor([5, 3])
    assert 2 < made(symbols, lengths).lengths.sum() < 8
    names, values = zip(*((n, p.detach().requires_grad_()) for n, p in made.named_parameters()), strict=True)

    def run(*parameters: Tensor) -> tuple[Tensor, Tensor]:
        out = torch.func.functional_call(made, dict(zip(names, parameters, strict=True)), (symbols, lengths))
        return out.vectors, out.penalty

    assert torch.autograd.gradcheck(run, values)


def same(segments: Segments, expected: Segments, b: int, to: int = 0) -> None:
    n, count = expected.ends.shape[1], int(expected.lengths[to])
    assert segments.ends[b, :n].equal(expected.ends[to])
    close(segments.vectors[b, :count], expected.vectors[to, :count], 1e-12)
    assert not segments.vectors[b, count:].any()


@settings(max_examples=15)
@given(st.lists(st.integers(1, 10), min_size=1, max_size=4), st.integers(0, 99), st.booleans())
def test_a_sentence_is_the_same_alone_and_in_company_and_given_cuts_hold_for_both(
    lengths: list[int], seed: int, forced: bool
) -> None:
    made = layer(seed)
    symbols, sizes = ragged([*lengths, 12], VOCABULARY, torch.Generator().manual_seed(seed))
    cuts = (symbols % 3 - 1).to(torch.int8) if forced else None
    with torch.no_grad():
        segments = made(symbols, sizes, given=cuts)
        again = made(symbols, sizes, given=torch.where(segments.ends, 1, -1).to(torch.int8))
        for b, n in enumerate(lengths):
            alone = made(symbols[b : b + 1, :n], [n], given=None if cuts is None else cuts[b : b + 1, :n])
            same(segments, alone, b)
            if cuts is not None:
                inner = cuts[b, : n - 1]
                assert segments.ends[b, : n - 1][inner > 0].all()
                assert not segments.ends[b, : n - 1][inner < 0].any()
    assert again.vectors.equal(segments.vectors)


def test_under_given_cuts_the_second_cell_sees_the_same_segments() -> None:
    made = layer(1)
    symbols = torch.randint(VOCABULARY, (1, 8), generator=torch.Generator().manual_seed(3))
    cuts = torch.tensor([[-1, 1, -1, -1, 1, -1, -1, 0]], dtype=torch.int8)
    segments = made(symbols, [8], given=cuts)
    assert segments.ends[0].nonzero().squeeze(1).tolist() == [1, 4, 7]
    # In the second direction, a symbol moves the vector of its own segment and of those before it.
    assert made.back is not None
    with torch.no_grad():
        made.output.weight.zero_()
        made.output.bias.zero_()
        base = made(symbols, [8], given=cuts).vectors[0]
        for place, moved in ((1, [True, False, False]), (3, [True, True, False]), (6, [True] * 3)):
            other = symbols.clone()
            other[0, place] = (other[0, place] + 1) % VOCABULARY
            changed = (made(other, [8], given=cuts).vectors[0] - base).abs().amax(1) > 1e-12
            assert changed.tolist() == moved


def test_the_first_cell_is_that_of_plain_act_enc() -> None:
    plain = layer(bidirectional=False)
    both = layer()
    assert [*plain.state_dict()] == [name for name in both.state_dict() if not name.startswith("back.")]
    assert all(value.equal(both.state_dict()[name]) for name, value in plain.state_dict().items())
    symbols, lengths = ragged([9, 4], VOCABULARY, torch.Generator().manual_seed(0))
    segments, expected = both(symbols, lengths), plain(symbols, lengths)
    for name in ("ends", "weights", "scores", "penalty", "live"):
        assert getattr(segments, name).equal(getattr(expected, name)), name
    listing = act_enc(plain, symbols[0])
    close(expected.vectors[0, : len(listing.vectors)], listing.vectors)


def test_what_else_it_does() -> None:
    made = layer()
    symbols = torch.ones(1, 4, dtype=torch.long)
    for state, final in ((None, False), (layer(bidirectional=False).start(1, torch.zeros(1)), True)):
        with refuses(ValueError, "", "bidirectional"):
            made(symbols, [4], state, final)
    assert "bidirectional=True" in repr(made)
    assert made.flops(9, 3) == 2 * layer(bidirectional=False).flops(9, 3)
    assert made.output_dim == made(symbols, [4]).vectors.shape[2] == 3
    rated = ActSegmenter(VOCABULARY, 4, 5, 3, rate=Rate(3.0), bidirectional=True)
    assert rated.back is not None
    assert rated.back.halting.bias.equal(rated.halting.bias)
    fixed = ActSegmenter(VOCABULARY, 4, 5, 3, halting_bias=0.0, learn_halting=False, bidirectional=True)
    assert not [n for n, p in fixed.named_parameters() if "halting" in n and p.requires_grad]
    for shape in ((0, 3), (2, 0)):
        empty = made(torch.zeros(shape, dtype=torch.long), [0] * shape[0])
        assert not empty.vectors.numel()


def test_a_model_is_saved_translated_and_analysed(tmp_path: Path) -> None:
    model = tiny_model(BOTH_WAYS, seed=2, decoder=ACT_DECODER | {"share": True})
    assert model.decoder.inner is model.segmenter.cell
    model.float().save_pretrained(tmp_path)
    loaded, texts = Translator.from_pretrained(tmp_path), ["abcdefgh", "ba", "", "hgfedcba"]
    assert loaded.translate(texts) == model.translate(texts)
    cuts: list[Any] = [[1, 2, 5], [], [], None]
    assert [len(pieces) for pieces in model.segment(texts, cuts=cuts)][:3] == [4, 1, 0]
    pairs = [*zip(sentences(3, 0), sentences(3, 1, 9, 8), strict=True)]
    model, batch = tiny_model(BOTH_WAYS, seed=2), collate(pairs)
    assert fidelity(model, batch, samples=4).positions > 0
    measured = flips(model, "abcdefgh", "abc")
    assert measured.hardening == 0
    assert any(change for change in measured.changes)
    whole = model(batch).total
    cut = torch.where(model.segmenter(batch.src, batch.src_lengths).ends, 1, -1).to(torch.int8)
    assert model(replace(batch, src_cuts=cut)).total.equal(whole)
