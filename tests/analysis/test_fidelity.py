"""Gradient fidelity: exact where the loss is smooth, the same in any company; ACT's sign and CIF's."""

from dataclasses import replace

import pytest
import torch
from analysis.word_spelling import SIZE, Spelling, trained, with_cutter
from helpers import ACT, ACT_DECODER, LOOKUP, sentences, tiny_model
from wording import refuses

from caesura.analysis import fidelity as module
from caesura.analysis.fidelity import fidelity
from caesura.analysis.losses import Pairs
from caesura.data.batching import Batch, collate
from caesura.inference import Translator
from caesura.segmenters.cutters.act import Act
from caesura.segmenters.cutters.cif import Cif
from caesura.segmenters.rate import Rate

READER = {"type": "bigru", "embedding_dim": 4, "size": 3}
CIF = {"type": "parts", "reader": READER, "cutter": {"type": "cif"}, "pooling": "weighted"}
CIF |= {"rate": {"target": 2.0}}
CUTTER_ACT = {**CIF, "cutter": {"type": "act", "halting_bias": -0.5}, "rate": None}
ROUTING = {**CIF, "cutter": "routing", "pooling": "start", "rate": None}
CARRY = {**CUTTER_ACT, "cutter": {"type": "act", "halting_bias": -0.5, "carry": True}}
HMRNN = {"type": "hmrnn", "embedding_dim": 4, "size": 4, "output_dim": 5}
BOTH_WAYS = ACT | {"bidirectional": True}
FIXED = {**CIF, "cutter": {"type": "fixed", "k": 2}, "rate": None}
SMOOTH = {"ACT-ENC": ACT, "both ways": BOTH_WAYS, "cif": CIF, "act": CUTTER_ACT, "carry": CARRY}
SHIFTABLE = SMOOTH | {"routing": ROUTING, "hmrnn": HMRNN}  # whose gradient is not the slope of its loss
EXACT = 1e-9


def batch_of(count: int = 5) -> Batch:
    return collate([*zip(sentences(count, 0, longest=12), sentences(count, 1, 9, 8), strict=True)])


class Smooth:
    """A loss that does not jump, in place of a model's: f(l) = a . l + b . l^2, of each sentence."""

    def __init__(self, pairs: Pairs) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = pairs.batch.src.shape
        self.a, self.b = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(2))
        self.pairs = pairs

    def slopes(self, rows: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        a, b = self.a[rows], self.b[rows]
        return (a * shift + b * shift**2).sum(1), a + 2 * b * shift


@pytest.mark.parametrize("factor", [1.0, -0.5])
def test_steins_gradient_is_that_of_a_smooth_loss(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = tiny_model(CUTTER_ACT), batch_of()
    smooth = Smooth(Pairs.of(model, batch))

    def slopes(pairs: Pairs, rows: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        losses, slope = smooth.slopes(rows, shift)
        return losses, factor * slope  # what autograd would say, were it wrong

    monkeypatch.setattr(Pairs, "slopes", slopes)
    measures = fidelity(model, batch, samples=30_000)
    exact = float((smooth.a * smooth.pairs.inner).sum(1).mean())
    assert measures.true_sum == pytest.approx(exact, abs=EXACT if factor == 1 else 0.15)
    assert measures.autograd_sum == pytest.approx(factor * exact, abs=EXACT)
    assert measures.cosine == pytest.approx(factor / abs(factor), abs=EXACT if factor == 1 else 0.02)
    assert measures.norm_ratio == pytest.approx(abs(factor), abs=EXACT if factor == 1 else 0.02)
    assert measures.positions == int(smooth.pairs.inner.sum())
    assert sum(part.positions for part in measures.bins) == pytest.approx(measures.positions)
    for part in measures.bins:
        assert part.truth * factor == pytest.approx(part.autograd, abs=EXACT if factor == 1 else 0.3)


@pytest.mark.parametrize("segmenter", SMOOTH.values(), ids=SMOOTH)
def test_autograd_is_the_slope_of_the_loss(segmenter: dict) -> None:
    model, batch = tiny_model(segmenter), batch_of()
    pairs = Pairs.of(model, batch)
    rows = torch.arange(len(batch))
    shift = 0.1 * torch.randn(
        batch.src.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)
    )
    losses, slopes = pairs.slopes(rows, shift)
    assert slopes[pairs.inner].any()
    step = 1e-6 * torch.ones_like(shift)
    rise = pairs.losses(rows, shift=shift + step) - pairs.losses(rows, shift=shift - step)
    torch.testing.assert_close(rise / 2e-6, slopes.sum(1), rtol=0, atol=1e-7)
    with torch.no_grad():
        each = pairs.losses(rows, shift=torch.zeros_like(shift)) * batch.trg_lengths
        assert model(batch).cross_entropy.item() == pytest.approx(float(each.sum()))
    assert not losses.requires_grad  # nor does anything keep the graph


@pytest.mark.parametrize(
    "segmenter", [ACT, CUTTER_ACT, CIF, ROUTING, HMRNN], ids=["ACT-ENC", "act", "cif", "routing", "hmrnn"]
)
def test_sentences_are_measured_the_same_alone_and_in_company(
    segmenter: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(segmenter)
    pairs = [*zip(sentences(4, 0, longest=12), sentences(4, 1, 9, 8), strict=True)]
    together = fidelity(model, collate(pairs), samples=12)
    alone = [fidelity(model, collate([pair]), samples=12) for pair in pairs]
    for name in ("autograd_sum", "true_sum") if segmenter is not CIF else ():  # which has none
        mean = sum(getattr(one, name) for one in alone) / len(alone)
        assert getattr(together, name) == pytest.approx(mean, abs=1e-10)
    assert together.positions == sum(one.positions for one in alone)
    monkeypatch.setattr("caesura.analysis.losses.SYMBOLS", 30)  # a few rows at a time
    parted = fidelity(model, collate(pairs, shape=(6, 15, 11)), samples=12)  # with rows of padding
    assert parted.cosine == pytest.approx(together.cosine, abs=1e-10)
    assert parted.true_sum == pytest.approx(together.true_sum, abs=1e-10)
    assert [bin.truth for bin in parted.bins] == pytest.approx(
        [bin.truth for bin in together.bins], abs=1e-10
    )
    assert fidelity(model, collate(pairs), samples=12, seed=1).bins != together.bins


def test_the_model_and_the_callers_chance_are_left_alone() -> None:
    model, batch = tiny_model(ACT, decoder=ACT_DECODER), batch_of()
    model.train()
    model.encoder.eval()
    modes = [module.training for module in model.modules()]
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    frozen = model.decoder.embedding.weight.requires_grad_(False)
    state = torch.get_rng_state()
    first = fidelity(model, batch, samples=6)
    assert torch.get_rng_state().equal(state)
    assert [module.training for module in model.modules()] == modes
    assert all(value.equal(weights[name]) for name, value in model.state_dict().items())
    assert all(p.requires_grad == (p is not frozen) and p.grad is None for p in model.parameters())
    torch.manual_seed(7)
    assert fidelity(model, batch, samples=6) == first


def test_dropout_is_off() -> None:
    model = tiny_model(CIF)
    model.encoder.dropout = torch.nn.Dropout(0.9)
    assert fidelity(model.train(), batch_of(), samples=6) == fidelity(model.eval(), batch_of(), samples=6)


def test_gaps_that_are_given_are_not_measured() -> None:
    model, batch = tiny_model(ACT), batch_of()
    inner = Pairs.of(model, batch).inner
    cuts = torch.zeros_like(batch.src, dtype=torch.int8)
    cuts[:, 1] = 1
    measures = fidelity(model, replace(batch, src_cuts=cuts), samples=6)
    assert measures.positions == int(inner.sum() - inner[:, 1].sum())


def test_noise_does_not_pull_the_cosine_to_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    # A loss of chance beside a slope: one estimate from all samples would be nearly all noise.
    model, batch = tiny_model(CIF), batch_of(40)
    smooth = Smooth(Pairs.of(model, batch))
    generator = torch.Generator().manual_seed(0)

    def slopes(pairs: Pairs, rows: torch.Tensor, shift: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        losses, slope = smooth.slopes(rows, shift)
        noise = torch.randn(losses.shape, generator=generator, dtype=torch.float64)
        return losses + noise, slope + torch.randn(slope.shape, generator=generator, dtype=torch.float64)

    monkeypatch.setattr(Pairs, "slopes", slopes)
    measures = fidelity(model, batch, samples=60)
    assert measures.cosine is not None
    assert measures.cosine_error is not None
    assert 0 < measures.cosine_error < 0.15
    assert abs(measures.cosine - 1) < 3 * measures.cosine_error
    assert measures.norm_ratio == pytest.approx(1, abs=0.2)


def test_what_noise_hides_has_no_cosine() -> None:
    unknown = torch.tensor([[1.0, 1.0], [-0.5, -0.1], [0.1, 0.1]], dtype=torch.float64)
    assert module._cosine(unknown.sum(1)) is None
    assert module._jackknife(unknown) is None
    assert module._agree((1.0, 0.1), (-1.0, 0.1)) is False
    assert module._agree((1.0, 0.1), (0.1, 0.1)) is None
    one = fidelity(tiny_model(CUTTER_ACT), batch_of(1), samples=6)
    assert (one.cosine_error, one.true_sum_error) == (None, None)
    nothing = fidelity(tiny_model(CUTTER_ACT), collate([([5], [5])]), samples=6)
    assert (nothing.positions, nothing.cosine, nothing.true_sum, nothing.bins) == (0, None, 0.0, [])


@pytest.mark.parametrize("segmenter", [LOOKUP, FIXED, ACT | {"learn_halting": False, "tau": 0.0}])
def test_a_segmenter_without_scores_is_refused(segmenter: dict) -> None:
    model, batch = tiny_model(segmenter), batch_of()
    assert not model.segmenter.shiftable
    with refuses(ValueError):
        fidelity(model, batch)
    with refuses(ValueError):
        model.segmenter.shifted(batch.src, batch.src_lengths, torch.zeros(batch.src.shape))


def test_wrong_arguments_are_refused() -> None:
    model, batch = tiny_model(ACT), batch_of()
    for wrong in ({"sigma": 0.0}, {"sigma": float("nan")}, {"samples": 0}):
        with refuses(ValueError, *wrong):
            fidelity(model, batch, **wrong)  # type: ignore[arg-type]
    with refuses(TypeError, "", "model.batch"):
        fidelity(model, ["ab"])  # type: ignore[arg-type]
    with refuses(ValueError, "", "targets"):
        fidelity(model, collate([([5, 6], None)]))
    with refuses(ValueError, "", "shift"):
        model.segmenter.shifted(batch.src, batch.src_lengths, torch.zeros(1, 2))


@pytest.mark.parametrize("segmenter", SHIFTABLE.values(), ids=SHIFTABLE)
@pytest.mark.parametrize("given", [False, True], ids=["free", "given"])
def test_a_shift_of_nothing_changes_nothing(segmenter: dict, given: bool) -> None:
    model, batch = tiny_model(segmenter), batch_of()
    cuts = (batch.src % 3 - 1).to(torch.int8) if given else None
    plain = model.segmenter(batch.src, batch.src_lengths, given=cuts)
    same = model.segmenter.shifted(batch.src, batch.src_lengths, torch.zeros(batch.src.shape).double(), cuts)
    assert same.ends.equal(plain.ends)
    torch.testing.assert_close(same.vectors, plain.vectors, rtol=0, atol=1e-12)
    torch.testing.assert_close(same.penalty, plain.penalty, rtol=0, atol=1e-12)
    assert same.scores is not None
    assert plain.scores is not None
    shift = torch.full(batch.src.shape, 0.7, dtype=torch.float64)
    moved = model.segmenter.shifted(batch.src, batch.src_lengths, shift, cuts)
    if segmenter is CIF:  # one shift of all scores is what its rate takes away again
        torch.testing.assert_close(moved.scores, plain.scores, rtol=0, atol=1e-8)
    elif segmenter is HMRNN:  # whose scores are not a sigmoid's
        torch.testing.assert_close(moved.cuts.logits[:, 0], plain.cuts.logits[:, 0] + 0.7)
    else:
        first = torch.logit(moved.scores[:, 0]) - torch.logit(plain.scores[:, 0])
        torch.testing.assert_close(first, shift[:, 0])


@pytest.fixture(scope="module")
def toy() -> tuple[Translator, Batch]:
    spelling = Spelling(seed=0)
    return trained(spelling, updates=250, seed=0), spelling.batch(200)


@pytest.mark.slow
def test_acts_gradient_has_the_wrong_sign_and_cifs_is_the_true_one(toy: tuple[Translator, Batch]) -> None:
    model, batch = toy
    act = Act(SIZE, epsilon=0.01)
    with_cutter(model, act, act.halting, batch)
    measures = fidelity(model, batch, samples=60)
    # Autograd would make segments longer, and the loss would rise: the run-away of docs/results/freedom.md.
    assert measures.signs_agree is False
    assert measures.autograd_sum > 0 > measures.true_sum
    assert measures.cosine is not None
    assert measures.cosine < 0.7
    cif = Cif(SIZE)
    with_cutter(model, cif, cif.score, batch, Rate(3.0))
    measures = fidelity(model, batch, samples=60)
    # Its rate decides.
    assert (measures.autograd_sum, measures.true_sum, measures.signs_agree) == (None, None, None)
    assert measures.cosine is not None
    assert measures.cosine > 0.98
    assert measures.norm_ratio == pytest.approx(1, abs=0.05)


def drawing(gradient: str) -> dict[str, object]:
    return {**CIF, "cutter": {"type": "bernoulli", "gradient": gradient}, "rate": None}


@pytest.mark.parametrize("gradient", ["score", "disarm", "self-critical"])
def test_estimates_from_losses_are_those_of_the_loss(gradient: str) -> None:
    measures = fidelity(tiny_model(drawing(gradient)), batch_of(), samples=1500)
    assert measures.cosine is not None
    assert measures.cosine_error is not None
    assert measures.cosine == pytest.approx(1.0, abs=max(0.15, 3 * measures.cosine_error))
    assert measures.norm_ratio == pytest.approx(1.0, abs=0.2)
    assert (measures.sigma, measures.estimated) == (None, True)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_steins_estimate_in_training_is_measured_and_not_plain_cifs_gradient(share: float) -> None:
    made = {**CIF, "cutter": {"type": "cif", "stein": share, "noise": 0.6}}
    measures = fidelity(tiny_model(made), batch_of(), samples=1500)
    assert measures.cosine is not None
    assert measures.cosine_error is not None
    assert measures.cosine == pytest.approx(1.0, abs=max(0.15, 3 * measures.cosine_error))
    assert measures.norm_ratio == pytest.approx(1.0, abs=0.2)
    assert (measures.sigma, measures.samples, measures.estimated) == (0.6, 1500, True)
    assert measures.autograd_sum is None  # its rate decides
    assert measures != fidelity(tiny_model(CIF), batch_of(), samples=1500, sigma=0.6)


@pytest.mark.parametrize("scale", [0.0, -1.0])
def test_a_wrong_estimate_in_training_is_seen(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    feedback = Cif.feedback
    monkeypatch.setattr(Cif, "feedback", lambda self, cuts, losses: scale * feedback(self, cuts, losses))
    measures = fidelity(tiny_model({**CIF, "cutter": {"type": "cif", "stein": 1.0}}), batch_of(), samples=600)
    assert measures.cosine is None if scale == 0 else (measures.cosine or 0) < -0.5


def test_straight_through_is_not() -> None:
    measures = fidelity(tiny_model(drawing("straight-through")), batch_of(), samples=1500)
    assert measures.cosine is not None
    assert measures.cosine < 0.8
    assert fidelity(tiny_model(drawing("straight-through")), batch_of(), samples=1500) == measures
