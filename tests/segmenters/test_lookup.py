"""The lookup segmenter: a table with the face of a segmenter."""

import torch
from helpers import ragged
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.segmenters.lookup import LookupSegmenter


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_every_symbol_is_a_segment_with_its_embedding(lengths: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    table = LookupSegmenter(7, 3)
    symbols, sizes = ragged(lengths, 7, torch.Generator().manual_seed(seed))
    segments = table(symbols, sizes)
    assert segments.lengths.tolist() == lengths
    assert segments.state is None
    assert segments.scores is None
    for b, n in enumerate(lengths):
        assert segments.vectors[b, :n].equal(table.embedding.weight[symbols[b, :n]])
        assert segments.ends[b].tolist() == [t < n for t in range(max(lengths))]
        assert segments.weights[b].tolist() == [float(t < n) for t in range(max(lengths))]
        assert not segments.vectors[b, n:].any()
    assert segments.penalty.tolist() == [0.0] * len(lengths)


def test_pieces_of_a_sentence_give_the_vectors_of_the_whole() -> None:
    table, symbols = LookupSegmenter(7, 3), torch.tensor([[1, 2, 3, 4]])
    first = table(symbols[:, :3], torch.tensor([3]), final=False)
    second = table(symbols[:, 3:], torch.tensor([1]), first.state)
    whole = table(symbols, torch.tensor([4]))
    assert torch.cat((first.vectors, second.vectors), 1).equal(whole.vectors)


def test_no_gradient_reaches_the_symbols_in_the_padding() -> None:
    table = LookupSegmenter(7, 3)
    table(torch.tensor([[1, 2, 5], [3, 0, 0]]), torch.tensor([3, 1])).vectors.sum().backward()
    gradient = table.embedding.weight.grad
    assert gradient is not None
    assert gradient.any(1).tolist() == [False, True, True, True, False, True, False]


def test_a_bad_option_is_named_first_in_the_refusal() -> None:
    with refuses(ValueError, "embedding_dim "):
        LookupSegmenter(7, 0)
