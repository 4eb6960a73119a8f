"""`Encoded` is rebuilt field by field, whatever fields an encoder adds."""

from dataclasses import dataclass, field, fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from caesura.decoders.act import ActDecoder
from caesura.decoders.recurrent import RecurrentDecoder
from caesura.encoders.base import PER_SEGMENT, Encoded


@dataclass(frozen=True)
class Located(Encoded):
    """Segments with the characters where they end, and sentences with a mark."""

    ends: Tensor | None = field(default=None, metadata=PER_SEGMENT)  # [B, S]
    mark: Tensor | None = None  # [B]


def located(lengths: list[int], summary: bool = True) -> Located:
    torch.manual_seed(0)
    B, S = len(lengths), max(lengths)
    return Located(
        torch.randn(B, S, 3),
        torch.tensor(lengths),
        torch.randn(B, 4) if summary else None,
        ends=torch.arange(B * S).view(B, S),
        mark=torch.arange(B),
    )


def equal(one: Encoded, other: Encoded) -> None:
    for f in fields(one):
        part, expected = getattr(one, f.name), getattr(other, f.name)
        assert (part is None) == (expected is None), f.name
        assert part is None or torch.equal(part, expected), f.name


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    more=st.integers(0, 3),
    wider=st.integers(0, 3),
    summary=st.booleans(),
)
def test_padding_adds_sentences_of_one_segment_and_segments_of_nobody(
    lengths: list[int], more: int, wider: int, summary: bool
) -> None:
    given = located(lengths, summary)
    B, S = len(lengths), max(lengths)
    padded = given.padded(B + more, S + wider)
    assert padded.lengths.tolist() == lengths + [1] * more
    assert padded.states.shape == (B + more, S + wider, 3)
    assert padded.ends.shape == (B + more, S + wider)
    assert padded.mark.tolist() == [*range(B), *[0] * more]
    kept = padded.rows(slice(B))
    for name in ("states", "ends"):
        assert not getattr(padded, name)[B:].any()
        assert not getattr(padded, name)[:, S:].any()
        assert torch.equal(getattr(kept, name)[:, :S], getattr(given, name))
    assert (padded.summary is None) != summary
    assert kept.summary is None or torch.equal(kept.summary, given.summary)


def test_rows_take_every_field() -> None:
    given, rows = located([2, 5, 1]), torch.tensor([2, 0, 2])
    taken = given.rows(rows)
    assert type(taken) is Located
    for f in fields(taken):
        assert torch.equal(getattr(taken, f.name), getattr(given, f.name)[rows]), f.name
    equal(given.rows(slice(1, 3)), given.rows(torch.tensor([1, 2])))


def test_what_is_detached_has_no_gradient() -> None:
    states = torch.randn(2, 3, 4, requires_grad=True)
    detached = Encoded(states * 2, torch.tensor([3, 2])).detached()
    assert not detached.states.requires_grad
    assert detached.summary is None
    assert torch.equal(detached.states, states * 2)


@pytest.mark.parametrize("kind", [RecurrentDecoder, ActDecoder])
def test_without_a_summary_a_decoder_begins_with_the_mean_of_the_states(kind: type) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 7, "memory_dim": 3, "summary_dim": 3, "embedding_dim": 2, "hidden_size": 4}
    sizes |= {"attention_size": 2} | ({"act_size": 3} if kind is ActDecoder else {})
    decoder = kind(**sizes).double()
    states, lengths = torch.randn(3, 4, 3).double(), torch.tensor([4, 2, 0])
    states[1, 2:] = states[2] = torch.nan  # padding
    means = torch.stack((states[0].mean(0), states[1, :2].mean(0), torch.zeros(3).double()))
    symbols = torch.tensor([[1, 4, 5]] * 3), torch.tensor([3, 3, 3])
    without = Encoded(states, lengths)
    assert torch.equal(without.first[2], means[2])
    # A GRU's padding may hold no NaN in the forced form.
    clean = torch.nan_to_num(states)
    result = decoder(Encoded(clean, lengths), *symbols).logits
    torch.testing.assert_close(result, decoder(Encoded(clean, lengths, means), *symbols).logits)
    with torch.no_grad():
        step, _ = decoder.step(decoder.start(without), symbols[0][:, :1])
    torch.testing.assert_close(step.logits, result[:, :1].detach())
