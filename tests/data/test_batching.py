import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.data.batching import BatchPlan, Split, collate
from caesura.data.vocabulary import BOS, EOS, PAD

ids = st.lists(st.integers(4, 60_000), max_size=12)
sides = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), max_size=200)
types = st.sampled_from(["sentences", "symbols", "characters"])


def as_lengths(pairs):
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


@given(st.lists(st.tuples(ids, ids), min_size=1, max_size=8))
def test_a_batch_holds_each_sentence_and_nothing_else(pairs):
    batch = collate([(np.array(s, dtype=np.uint16), t) for s, t in pairs])
    assert batch.src.dtype == batch.trg_in.dtype == batch.trg_lengths.dtype == torch.int64
    assert batch.src.shape == (len(pairs), max(len(s) for s, _ in pairs) + 1)
    assert batch.trg_in.shape == batch.trg_out.shape == (len(pairs), max(len(t) for _, t in pairs) + 1)
    for b, (src, trg) in enumerate(pairs):
        n, m = batch.src_lengths[b], batch.trg_lengths[b]
        assert batch.src[b, :n].tolist() == [*src, EOS]
        assert batch.trg_in[b, :m].tolist() == [BOS, *trg]
        assert batch.trg_out[b, :m].tolist() == [*trg, EOS]
        for row, length in ((batch.src, n), (batch.trg_in, m), (batch.trg_out, m)):
            assert (row[b, length:] == PAD).all()
    assert batch.indices.tolist() == list(range(len(pairs))) == list(range(len(batch)))


def test_a_source_alone_makes_a_batch():
    batch = collate([([5, 6], None), ([], None)], indices=[9, 4]).to("cpu")
    assert batch.src.tolist() == [[5, 6, EOS], [EOS, PAD, PAD]]
    assert batch.trg_in is batch.trg_out is batch.trg_lengths is None
    assert batch.indices.tolist() == [9, 4]


def test_cuts_are_as_wide_as_the_sources_and_free_beyond_them():
    cuts = [np.array([0, 1, -1], np.int8), None, np.array([], np.int8)]
    batch = collate([([5, 6, 7], [4]), ([8], [4]), ([], [4])], shape=(4, 6, 2), cuts=cuts)
    assert batch.src_cuts.dtype == torch.int8
    assert batch.src_cuts.tolist() == [[0, 1, -1, 0, 0, 0], [0] * 6, [0] * 6, [0] * 6]
    assert collate([([5], None)], cuts=[np.array([1], np.int8)]).src_cuts.tolist() == [[1, 0]]
    assert collate([([5], None)]).src_cuts is None
    for wrong in ([np.array([1, 0], np.int8)], [], [None, None]):
        with pytest.raises(ValueError, match=r"cuts|zip"):
            collate([([5], None)], cuts=wrong)


def test_a_batch_moves_whole():
    batch = collate([([5], [6, 7])]).to("meta")
    tensors = [batch.src, batch.src_lengths, batch.trg_in, batch.trg_out, batch.trg_lengths]
    assert all(t.device.type == "meta" for t in tensors)


@pytest.mark.parametrize(
    ("pairs", "indices"), [([], None), ([([4], [4]), ([4], None)], None), ([([4], None)], [1, 2])]
)
def test_what_makes_no_batch_is_refused(pairs, indices):
    with refuses(ValueError):
        collate(pairs, indices)


@given(sides, st.integers(1, 300), types, st.integers(1, 5), st.integers(0, 3))
def test_every_sentence_comes_once_an_epoch(pairs, size, kind, pool, epoch):
    batches = BatchPlan(as_lengths(pairs), size, kind, seed=7, pool=pool).epoch(epoch)
    indices = [i for batch in batches for i in batch.tolist()]
    assert sorted(indices) == list(range(len(pairs)))
    assert all(len(batch) for batch in batches)


@given(sides, st.integers(1, 300), st.integers(1, 5))
def test_the_symbol_budget_holds_with_padding(pairs, budget, pool):
    lengths = as_lengths(pairs)
    for batch in BatchPlan(lengths, budget, "symbols", pool=pool).epoch(0):
        src, trg = lengths[batch].max(axis=0) + 1
        assert len(batch) == 1 or max(src, trg) * len(batch) <= budget


@given(sides, st.integers(1, 300), st.integers(1, 5), st.integers(0, 3))
def test_of_a_text_in_characters_both_kinds_of_budget_make_the_same_batches(pairs, budget, pool, epoch):
    plans = (BatchPlan(as_lengths(pairs), budget, kind, 3, pool) for kind in ("symbols", "characters"))
    one, other = ([batch.tolist() for batch in plan.epoch(epoch)] for plan in plans)
    assert one == other


@given(sides, st.integers(1, 50))
def test_all_batches_of_sentences_but_one_are_full(pairs, size):
    sizes = sorted((len(b) for b in BatchPlan(as_lengths(pairs), size, pool=3).epoch(0)), reverse=True)
    assert all(n == size for n in sizes[:-1])


@pytest.mark.parametrize("kind", ["sentences", "symbols"])
def test_the_plan_is_a_function_of_seed_and_epoch(kind):
    lengths = np.random.default_rng(0).integers(1, 50, (500, 2))

    def planned(seed, epoch):
        return [b.tolist() for b in BatchPlan(lengths, 40, kind, seed).epoch(epoch)]

    plan = BatchPlan(lengths, 40, kind, 3)
    backwards = {e: [b.tolist() for b in plan.epoch(e)] for e in (2, 1, 0, 1)}
    assert all(backwards[e] == planned(3, e) for e in (0, 1, 2))
    assert len({str(planned(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4


@pytest.mark.parametrize(("kind", "size"), [("sentences", 32), ("symbols", 2000)])
def test_similar_lengths_are_together_and_batches_in_random_order(kind, size):
    random = np.random.default_rng(1)
    src = random.integers(5, 200, 20_000)
    lengths = np.stack([src, np.maximum(1, src // 3 + random.integers(-3, 4, len(src)))], axis=1)
    batches = BatchPlan(lengths, size, kind).epoch(0)
    padded = sum(len(b) * (lengths[b].max(axis=0) + 1) for b in batches)
    assert (padded < 1.12 * (lengths + 1).sum(axis=0)).all()
    means = np.array([lengths[b].mean() for b in batches])
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.2


def test_batches_are_like_a_list():
    batches = BatchPlan(np.ones((10, 2), dtype=np.uint16), 3).epoch(0)
    assert len(batches) == 4
    assert batches[-1].tolist() == list(batches)[3].tolist()
    assert [b.tolist() for b in batches[1:3]] == [batches[1].tolist(), batches[2].tolist()]
    with pytest.raises(IndexError):
        batches[4]


@pytest.mark.parametrize(
    "wrong", [{"batch_size": 0}, {"batch_type": "tokens"}, {"pool": 0}, {"lengths": np.ones(3)}]
)
def test_a_plan_that_makes_no_sense_is_refused(wrong):
    with refuses(ValueError, "", *wrong):
        BatchPlan(**{"lengths": np.ones((3, 2), dtype=int), "batch_size": 2} | wrong)


@given(st.integers(1, 20), st.integers(1, 5), st.integers(1, 4))
def test_a_split_gives_each_row_to_one_part_of_one_process(rows: int, size: int, parts: int) -> None:
    planned = np.arange(100, 100 + rows)
    shares = [Split(rank, size, parts)(planned) for rank in range(size)]
    assert sorted(int(row) for share in shares for part in share for row in part) == planned.tolist()
    assert max(map(len, shares)) <= parts
    assert all(len(part) for share in shares for part in share)
    counts = [sum(map(len, share)) for share in shares]
    assert max(counts) - min(counts) <= 1
