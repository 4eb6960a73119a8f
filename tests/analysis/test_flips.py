"""The flip oracle: losses as `score` has them, a baseline that is the model's own, and flips that gain."""

from collections.abc import Sequence

import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, tiny_model
from wording import refuses

from caesura.analysis.flips import Flips, Pull, all_flips, flip_statistics, flips
from caesura.inference import Translator

READER = {"type": "bigru", "embedding_dim": 4, "size": 3}
CIF = {"type": "parts", "reader": READER, "cutter": {"type": "cif"}, "pooling": "weighted"}
CIF |= {"rate": {"target": 2.0}}
CUTTER_ACT = {**CIF, "cutter": {"type": "act", "halting_bias": -0.5}, "rate": None}
FIXED = {**CIF, "cutter": {"type": "fixed", "k": 2}, "rate": None}
RANDOM = {**CIF, "cutter": {"type": "random"}}
ROUTING = {**CIF, "cutter": "routing", "pooling": "start", "rate": None}
HMRNN = {"type": "hmrnn", "embedding_dim": 5, "size": 4, "output_dim": 5}
EVERY = [ACT, CIF, CUTTER_ACT, FIXED, RANDOM, ROUTING, HMRNN]
NAMES = ["ACT-ENC", "cif", "act", "fixed", "random", "routing", "hmrnn"]
SOURCES, TARGETS = ["abcdefgh", "hgabba", "ab", "c", "ddcca"], ["abcd", "bbca", "", "e", "cabbage"[:3]]
every_segmenter = pytest.mark.parametrize("segmenter", EVERY, ids=NAMES)


def offsets(cuts: Sequence[bool]) -> list[int]:
    return [at + 1 for at, cut in enumerate(cuts) if cut]


def scored(model: Translator, one: Flips, cuts: Sequence[bool]) -> float:
    """The loss as `score` has it."""
    [log_prob] = model.score([one.source], [one.target], cuts=[offsets(cuts)])
    return -log_prob / (len(one.target) + 1)


def flipped(cuts: Sequence[bool], *gaps: int) -> list[bool]:
    return [cut != (at in gaps) for at, cut in enumerate(cuts)]


@every_segmenter
def test_losses_are_those_of_score_one_by_one(segmenter: dict) -> None:
    model = tiny_model(segmenter)
    for one, pieces in zip(all_flips(model, SOURCES, TARGETS), model.segment(SOURCES), strict=True):
        assert one.symbols == list(one.source)
        assert [len(piece) for piece in pieces] == [
            b - a for a, b in zip([0, *offsets(one.cuts)], [*offsets(one.cuts), len(one.source)], strict=True)
        ]
        [baseline] = model.score([one.source], [one.target])
        assert one.soft == pytest.approx(-baseline / (len(one.target) + 1), abs=1e-12)
        assert one.hard == pytest.approx(scored(model, one, one.cuts), abs=1e-12)
        assert len(one.flipped) == len(one.cuts) == len(one.source) - 1
        for gap, loss in enumerate(one.flipped):
            assert loss == pytest.approx(scored(model, one, flipped(one.cuts, gap)), abs=1e-12)
        assert one.reached == pytest.approx(scored(model, one, flipped(one.cuts, *one.greedy)), abs=1e-12)


@every_segmenter
def test_only_soft_cuts_cost_something_to_harden(segmenter: dict) -> None:
    result = all_flips(tiny_model(segmenter), SOURCES, TARGETS)
    hardening = [one.hardening for one in result]
    assert any(hardening) if segmenter is CIF else not any(hardening)


@every_segmenter
def test_greedy_flips_take_the_best_and_never_raise_the_loss(segmenter: dict) -> None:
    model = tiny_model(segmenter)
    none, one, two, three = (flips(model, SOURCES[0], TARGETS[0], rounds=n) for n in (0, 1, 2, 20))
    assert none.greedy == []
    assert none.reached == none.hard
    assert one.greedy == two.greedy[:1] == three.greedy[:1]
    assert len(one.greedy) == 1
    assert one.gain == pytest.approx(one.best)
    assert one.changes[one.greedy[0]] == pytest.approx(-one.best)
    assert three.reached <= two.reached <= one.reached < none.reached
    # At the end no single flip gains.
    end = flipped(three.cuts, *[gap for gap in three.greedy if three.greedy.count(gap) % 2])
    left = [scored(model, three, flipped(end, gap)) for gap in range(len(end))]
    assert min(left) >= three.reached - 2e-6


@pytest.mark.parametrize("segmenter", [ACT, CIF, FIXED, ROUTING], ids=["ACT-ENC", "cif", "fixed", "routing"])
def test_flips_are_the_same_alone_in_company_and_in_small_batches(
    segmenter: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(segmenter, decoder=ACT_DECODER)
    together = all_flips(model, SOURCES, TARGETS)
    monkeypatch.setattr("caesura.analysis.losses.SYMBOLS", 20)
    for one, (source, target) in zip(together, zip(SOURCES, TARGETS, strict=True), strict=True):
        alone = flips(model, source, target)
        assert alone.cuts == one.cuts
        assert alone.greedy == one.greedy
        assert alone.flipped == pytest.approx(one.flipped, abs=1e-12)
        assert (alone.pull is None) == (segmenter is FIXED)
        if alone.pull and one.pull:
            assert alone.pull.gradient == pytest.approx(one.pull.gradient, abs=1e-12)


def test_the_model_is_left_alone() -> None:
    model = tiny_model(CIF).train()
    model.encoder.dropout = torch.nn.Dropout(0.9)
    state = torch.get_rng_state()
    first = flips(model, *("abcdef", "abc"))
    assert torch.get_rng_state().equal(state)
    assert all(module.training for module in model.modules())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert flips(model.eval(), "abcdef", "abc") == first  # without dropout


def test_the_gradient_is_compared_with_what_a_cut_costs() -> None:
    model = tiny_model(CIF)
    one = flips(model, SOURCES[0], TARGETS[0])
    assert one.pull is not None
    costs = [-c if cut else c for c, cut in zip(one.changes, one.cuts, strict=True) if c is not None]
    agree = [g * c > 0 for g, c in zip(one.pull.gradient, costs, strict=True)]
    assert one.pull.compared == 7
    assert one.pull.agreeing == pytest.approx(sum(agree) / 7)
    assert 0 < one.pull.agreeing < 1
    sizes = [abs(c) for c in costs]
    won = sum(size for size, same in zip(sizes, agree, strict=True) if same)
    assert one.pull.weighted == pytest.approx(won / sum(sizes))
    g, c = torch.tensor(one.pull.gradient), torch.tensor(costs)
    assert one.pull.cosine == pytest.approx(float(torch.cosine_similarity(g, c, dim=0)), abs=1e-6)
    # By hand: a small shift of one score.
    batch = model.batch(SOURCES[:1], TARGETS[:1])
    losses = []
    for step in (1e-6, -1e-6):
        shift = torch.zeros(batch.src.shape, dtype=torch.float64)
        shift[0, 2] = step
        segments = model.segmenter.shifted(batch.src, batch.src_lengths, shift)
        losses.append(float(model.loss(batch, segments).cross_entropy.detach()) / 5)
    assert (losses[0] - losses[1]) / 2e-6 == pytest.approx(one.pull.gradient[2], abs=1e-7)


def test_a_gap_that_stays_cut_has_no_flip() -> None:
    model = tiny_model(ACT | {"cut_after": "b", "halting_bias": -20.0})
    one = flips(model, "abcbd", "ab")
    assert one.cuts == [False, True, False, True]
    assert [loss is None for loss in one.flipped] == [False, True, False, True]
    assert {1, 3}.isdisjoint(one.greedy)
    assert one.changes[1] is None


def test_means_over_sentences() -> None:
    def one(pull: Pull | None, *losses: float | None) -> Flips:
        return Flips("abc", "x", [*"abc"], [True, False], 0.9, 1.0, [*losses], [0], 0.5, pull)

    statistics = flip_statistics([one(Pull([1.0, 1.0], 2, 0.5, 0.5, 0.0), 0.5, 1.5), one(None, None, 1.25)])
    assert (statistics.sentences, statistics.gaps, statistics.soft, statistics.hard) == (2, 4, 0.9, 1.0)
    assert statistics.hardening == pytest.approx(0.1)
    assert (statistics.best, statistics.greedy, statistics.rounds) == (pytest.approx(0.125), 0.5, 1.0)
    assert statistics.gaining == pytest.approx(1 / 3)
    assert (statistics.compared, statistics.agreeing, statistics.weighted) == (2, 1.0, 1.0)
    assert statistics.cosine == pytest.approx(1.0)
    single = flip_statistics([flips(tiny_model(FIXED), "a", "ab")])
    assert (single.gaps, single.best, single.gaining, single.agreeing) == (0, 0.0, None, None)


def test_what_cannot_be_flipped_is_refused() -> None:
    with refuses(TypeError):
        flips(tiny_model(ACT), ["ab", "c"], ["a", "b"])  # type: ignore[arg-type]
    with refuses(ValueError):
        flips(tiny_model(LOOKUP), "abc", "ab")
    with refuses(ValueError):
        all_flips(tiny_model(ACT), ["ab", ""], ["a", "b"])
