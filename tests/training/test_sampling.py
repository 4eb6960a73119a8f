"""What training may feed and minimise besides the reference: scheduled sampling, minimum risk."""

from typing import Any

import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, RECURRENT, TRANSFORMER, score_targets, sentences, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU, CHRF

from caesura.config import Training
from caesura.data.batching import collate
from caesura.data.vocabulary import BOS, EOS, PAD
from caesura.kernels.adam import Adam
from caesura.search.scheduled import scheduled_inputs
from caesura.training import risk
from caesura.training.risk import risk_loss
from caesura.training.schedule import sampled_share
from caesura.training.step import Step

BOTH = pytest.mark.parametrize("segmenter", [LOOKUP, ACT], ids=["lookup", "act"])
DECODERS = pytest.mark.parametrize(
    "decoder", [RECURRENT, ACT_DECODER, TRANSFORMER], ids=["recurrent", "act", "transformer"]
)
PAIRS = list(zip(sentences(5, seed=1), sentences(5, seed=2, vocab_size=9), strict=True))


@given(
    st.sampled_from(["linear", "exponential", "sigmoid"]), st.floats(0.01, 1), st.integers(1, 1000), st.data()
)
def test_the_share_of_draws_rises_from_nothing_to_its_end(
    schedule: str, end: float, updates: int, data: st.DataObject
) -> None:
    settings = Training(sampling=end, sampling_schedule=schedule, sampling_updates=updates)
    one, other = sorted(data.draw(st.tuples(*[st.integers(0, 2000)] * 2)))
    assert sampled_share(settings, 0) == pytest.approx(0)
    assert sampled_share(settings, updates) == sampled_share(settings, 10**6) == pytest.approx(end)
    assert sampled_share(settings, one) <= sampled_share(settings, other) + 1e-12


def test_no_share_feeds_the_reference_and_the_whole_share_nothing_of_it() -> None:
    model, batch = tiny_model(), collate(PAIRS)
    _, encoded = model.encode(batch.src, batch.src_lengths)
    torch.manual_seed(0)
    assert torch.equal(
        scheduled_inputs(model.decoder, encoded, batch.trg_in, torch.tensor(0.0)), batch.trg_in
    )
    fed = scheduled_inputs(model.decoder, encoded, batch.trg_in, torch.tensor(1.0))
    assert (fed[:, 0] == BOS).all()
    assert torch.equal(fed == PAD, batch.trg_in == PAD)
    assert not (fed[:, 1:] == EOS).any()
    assert not torch.equal(fed, batch.trg_in)


@torch.no_grad()
def test_draws_have_the_models_distribution_after_what_was_fed_before() -> None:
    model = tiny_model(scale=2.0)
    batch = collate([(PAIRS[0][0], [5, 6])] * 4000)
    _, encoded = model.encode(batch.src, batch.src_lengths)
    torch.manual_seed(0)
    fed = scheduled_inputs(model.decoder, encoded, batch.trg_in, torch.tensor(1.0))
    alone = encoded.rows(slice(1))
    symbols = [s for s in range(9) if s not in (PAD, BOS, EOS)]
    state = model.decoder.start(alone)
    first, state = model.decoder.step(state, torch.tensor([[BOS]]))
    for y in symbols:  # the second draw, given the first
        rows = fed[fed[:, 1] == y]
        share = first.logits[0, 0, symbols].softmax(0)[symbols.index(y)]
        assert len(rows) / len(fed) == pytest.approx(float(share), abs=0.03)
        second, _ = model.decoder.step(state, torch.tensor([[y]]))
        expected = second.logits[0, 0, symbols].softmax(0)
        if len(rows) > 300:
            shares = torch.stack([(rows[:, 2] == s).double().mean() for s in symbols])
            assert (shares - expected).abs().max() < 4 * (0.25 / len(rows)) ** 0.5


@BOTH
@DECODERS
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_a_step_with_draws_has_the_gradient_of_what_was_fed(
    segmenter: dict[str, Any], decoder: dict[str, Any], smoothing: float
) -> None:
    training = {"sampling": 1.0, "sampling_updates": 10, "label_smoothing": smoothing}
    model = tiny_model(segmenter, decoder=decoder, training=training)
    batch = collate(PAIRS)
    torch.manual_seed(5)
    sums = Step(model, model.config.training)(batch, update=10)
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    torch.manual_seed(5)
    segments, encoded = model.encode(batch.src, batch.src_lengths)
    fed = scheduled_inputs(model.decoder, encoded, batch.trg_in, torch.tensor(1.0))
    model.zero_grad()
    decoded = model.decoder(encoded, fed, batch.trg_lengths)
    logits = decoded.logits.flatten(0, 1)
    loss = torch.nn.functional.cross_entropy(
        logits, batch.trg_out.flatten(), ignore_index=PAD, label_smoothing=smoothing
    )
    loss = loss + segmenter.get("tau", 0.0) * segments.penalty.mean()
    loss = loss + decoder.get("tau", 0.0) * decoded.penalty.mean()
    loss.backward()
    assert float(sums[0]) / 5 == pytest.approx(float(loss.detach()))
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-9, atol=1e-12, msg=name)


@BOTH
@DECODERS
@pytest.mark.parametrize("metric", ["chrf", "bleu"])
def test_the_risk_is_the_expected_cost_of_the_candidates(
    segmenter: dict[str, Any], decoder: dict[str, Any], metric: str
) -> None:
    training = {"risk_candidates": 4, "risk_metric": metric, "risk_alpha": 0.3}
    scale = 1.5 if decoder is TRANSFORMER else 3.0  # so that what is drawn ends, and differs
    model = tiny_model(segmenter, scale=scale, decoder=decoder, training=training)
    batch = collate(PAIRS, shape=(7, 12, 12))  # with rows of padding
    segments, encoded = model.encode(batch.src, batch.src_lengths)
    candidates = risk._draw(model, encoded, batch, [trg for _, trg in PAIRS], update=3)
    assert [drawn[0] for drawn in candidates] == [trg for _, trg in PAIRS]
    assert max(map(len, candidates)) > 1
    scorer = CHRF() if metric == "chrf" else BLEU(effective_order=True)
    decode = model.trg_vocabulary.decode
    expected = []
    for b, drawn in enumerate(candidates):
        assert len({tuple(target) for target in drawn}) == len(drawn)
        one = encoded.rows(slice(b, b + 1))
        logs = []
        for target in drawn:
            trg = torch.tensor([[*target, EOS]])
            logs.append(score_targets(model.decoder, one, trg, torch.tensor([len(target) + 1])))
        shares = (0.3 * torch.cat(logs)).softmax(0)
        costs = [1 - scorer.sentence_score(decode(t), [decode(drawn[0])]).score / 100 for t in drawn]
        expected.append(float((shares * torch.tensor(costs, dtype=torch.float64)).sum()))
    loss = risk_loss(model, batch, segments, update=3)
    penalty = segmenter.get("tau", 0.0) * float(segments.penalty[:5].detach().mean())
    plain = model(collate(PAIRS))
    if "tau" in decoder:
        penalty += decoder["tau"] * float(plain.counts["decoder_penalty"].detach()) / 5
    assert float(loss.total.detach()) == pytest.approx(sum(expected) / 5 + penalty, rel=1e-6)
    assert float(loss.cross_entropy.detach()) == pytest.approx(float(plain.cross_entropy.detach()))
    assert (int(loss.symbols), int(loss.sentences)) == (int(plain.symbols), 5)


@pytest.mark.parametrize("metric", ["chrf", "bleu"])
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("tokenize", ["13a", "char", "none"])
def test_what_is_at_risk_is_the_score_that_the_config_asks_for(
    metric: str, lowercase: bool, tokenize: str
) -> None:
    testing = {"bleu_tokenize": tokenize, "lowercase": lowercase}
    model = tiny_model(training={"risk_metric": metric}, testing=testing)
    scorer = CHRF(lowercase=lowercase)
    if metric == "bleu":
        scorer = BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True, force=True)
    pair = "Abc def, ghi jkl.", "abc def, ghi Xyz."
    expected = scorer.sentence_score(pair[0], [pair[1]]).score / 100
    assert risk._score(model.config)(*pair) == pytest.approx(expected)


def test_draws_depend_on_the_sentence_and_the_update_not_on_its_company() -> None:
    model = tiny_model(training={"risk_candidates": 3})
    references = [trg for _, trg in PAIRS]
    together = collate(PAIRS, [10, 11, 12, 13, 14])
    _, encoded = model.encode(together.src, together.src_lengths)
    draws = [risk._draw(model, encoded, together, references, update) for update in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]
    alone = collate(PAIRS[2:3], [12])
    _, encoded = model.encode(alone.src, alone.src_lengths)
    assert risk._draw(model, encoded, alone, references[2:3], 0) == draws[0][2:3]


@pytest.mark.slow
def test_minimum_risk_raises_the_score_that_is_at_risk() -> None:
    model = tiny_model(training={"risk_candidates": 12, "risk_alpha": 1.0, "risk_after": 1})
    batch, step = collate(PAIRS), Step(model, model.config.training)
    optimizer = Adam(model.parameters(), lr=0.02)
    losses = []
    for update in range(60):
        sums = step(batch, update)
        optimizer.step()
        losses.append(float(sums[0]) / 5)
    # The first is a cross-entropy; a risk lies between 0 and 1.
    assert losses[0] > 1 > losses[1]
    assert sum(losses[-10:]) < 0.8 * sum(losses[1:11])


@pytest.mark.parametrize(("alpha", "spread"), [(0.01, 0.0), (1.0, 5.0)])
def test_shares_sum_to_one_for_each_sentence(alpha: float, spread: float) -> None:
    owners = torch.tensor([0, 0, 1, 2, 2, 2])
    shares = risk._shares(alpha * spread * torch.arange(6.0), owners, 3)
    sums = torch.zeros(3).scatter_add(0, owners, shares)
    torch.testing.assert_close(sums, torch.ones(3))
