"""Adam as configured: betas, decoupled weight decay, and the weights that do not decay."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, RECURRENT, sentences, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch import nn, optim
from training.outcomes import configured, outcome, run

from caesura.config import Training
from caesura.data.batching import collate
from caesura.training.optimizer import build_adam, decaying

PAIRS = list(zip(sentences(7, seed=3), sentences(7, seed=4, vocab_size=9), strict=True))


class Tied(nn.Module):
    """A table that is also the output layer, a norm, and a layer with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm, self.linear = nn.Embedding(5, 3), nn.LayerNorm(3), nn.Linear(3, 3)
        self.out = nn.Linear(3, 5, bias=False)
        self.out.weight = self.table.weight


def names_of(model: nn.Module, weights: list[nn.Parameter]) -> set[str]:
    return {name for name, p in model.named_parameters() if any(p is weight for weight in weights)}


def test_matrices_decay_and_biases_norms_and_tables_do_not() -> None:
    model = Tied()
    assert names_of(model, decaying(model)) == {"linear.weight"}
    translator = tiny_model(ACT, decoder=ACT_DECODER)
    kept = names_of(translator, [*translator.parameters()]) - names_of(translator, decaying(translator))
    assert kept == {
        name
        for name, p in translator.named_parameters()
        if "bias" in name or name in ("segmenter.embedding.weight", "decoder.embedding.weight")
    }


def gradients(model: nn.Module, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = torch.randn(p.shape, generator=generator, dtype=p.dtype)


@given(
    st.floats(0, 3),
    st.tuples(st.floats(0, 0.99), st.floats(0, 0.999)),
    st.floats(1e-5, 0.1),
    st.integers(0, 99),
)
def test_updates_are_those_of_pytorchs_adamw_over_the_same_groups(
    weight_decay: float, betas: tuple[float, float], rate: float, seed: int
) -> None:
    ours = tiny_model(ACT, decoder=ACT_DECODER)
    theirs = deepcopy(ours)
    settings = Training(weight_decay=weight_decay, adam_betas=[*betas], learning_rate=rate)
    matrices = decaying(theirs)
    rest = [p for p in theirs.parameters() if all(p is not matrix for matrix in matrices)]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    one, other = build_adam(ours, settings), optim.AdamW(groups, rate, betas)
    for turn in range(3):
        for optimizer, model in ((one, ours), (other, theirs)):
            gradients(model, seed + turn)
            optimizer.step()
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-10, atol=1e-12, msg=name)


def test_an_update_worked_by_hand() -> None:
    layer = nn.Linear(1, 1)
    nn.init.constant_(layer.weight, 2.0)
    nn.init.constant_(layer.bias, 2.0)
    optimizer = build_adam(layer, Training(weight_decay=0.1, learning_rate=0.5, adam_betas=[0.0, 0.0]))
    gradients(layer, 0)
    layer.weight.grad, layer.bias.grad = torch.full((1, 1), -3.0), torch.full((1,), 3.0)
    optimizer.step()
    assert layer.weight.item() == pytest.approx(2 * (1 - 0.5 * 0.1) + 0.5)  # the sign of the gradient
    assert layer.bias.item() == pytest.approx(2 - 0.5)


@pytest.mark.parametrize("wrong", [False, True])
def test_an_update_that_is_skipped_takes_nothing_away(wrong: bool) -> None:
    model = tiny_model(LOOKUP, decoder=RECURRENT)
    optimizer = build_adam(model, Training(weight_decay=0.5, learning_rate=0.1))
    model(collate(PAIRS)).total.backward()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.found_inf = torch.tensor(float(wrong))  # type: ignore[attr-defined]
    optimizer.step()
    same = [name for name, p in model.named_parameters() if p.equal(before[name])]
    assert (len(same) == len(before)) == wrong


def test_without_decay_it_is_adam_with_one_group_bit_for_bit() -> None:
    ours = tiny_model(LOOKUP, decoder=RECURRENT)
    theirs = deepcopy(ours)
    one, other = build_adam(ours, Training()), optim.Adam(theirs.parameters(), 3e-4, fused=True)
    for turn in range(3):
        for optimizer, model in ((one, ours), (other, theirs)):
            gradients(model, turn)
            optimizer.step()
    assert all(p.equal(q) for p, q in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert one.state_dict()["state"].keys() == other.state_dict()["state"].keys()


@pytest.mark.slow
@pytest.mark.usefixtures("frequent_log")
def test_betas_and_decay_reach_training_which_goes_on_exactly(corpus: Path, tmp_path: Path) -> None:
    results = {}
    for options in ((), ("training.adam_betas=[0.5, 0.6]",), ("training.weight_decay=0.3",)):
        config = configured(corpus, "act", "model.encoder.dropout=0.3", *options)
        run(config, tmp_path / f"whole{options}")
        results[options] = outcome(tmp_path / f"whole{options}")
        if options:
            run(config, tmp_path / f"parts{options}", 1, 3, 6, 7, 12)
            assert outcome(tmp_path / f"parts{options}") == results[options]
    states = [result["state"] for result in results.values()]
    assert states[0] != states[1] != states[2] != states[0]
