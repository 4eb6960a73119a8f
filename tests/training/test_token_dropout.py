"""Token dropout: only training reads <unk> in place of some symbols, and nothing else changes."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from helpers import ACT, ACT_DECODER, LOOKUP, RECURRENT, TRANSFORMER, sentences, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from training.outcomes import check_resumed, configured, outcome, run

from caesura.data.batching import collate
from caesura.data.vocabulary import SPECIALS, UNK
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.training import step as steps
from caesura.training.feed import padded
from caesura.training.step import Step
from caesura.training.token_dropout import dropped

PAIRS = list(zip(sentences(8, seed=1), sentences(8, seed=2, vocab_size=9), strict=True))
BOTH = {"src_token_dropout": 0.4, "trg_token_dropout": 0.4}


@given(st.floats(0, 1, exclude_max=True), st.integers(0, 2**32 - 1), st.sets(st.integers(4, 11)))
def test_the_share_is_kept_and_specials_and_spared_symbols_stay(
    share: float, seed: int, spared: set[int]
) -> None:
    torch.manual_seed(seed)
    symbols = torch.randint(12, (40, 100))
    result = dropped(symbols, share, spared)
    free = (symbols >= len(SPECIALS)) & ~torch.isin(symbols, torch.tensor([*spared], dtype=torch.long))
    assert torch.equal(result[~free], symbols[~free])
    changed = result != symbols
    assert (result[changed] == UNK).all()
    if count := int(free.sum()):  # six standard deviations, so that no example ever fails by chance
        assert abs(int(changed.sum()) / count - share) <= 6 * (share * (1 - share) / count) ** 0.5 + 1e-6


def gradients(model: Translator) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("segmenter", [LOOKUP, ACT | {"cut_after": "ac"}], ids=["lookup", "act"])
@pytest.mark.parametrize(
    "decoder", [RECURRENT, ACT_DECODER, TRANSFORMER], ids=["recurrent", "act", "transformer"]
)
def test_a_step_has_the_gradient_of_the_text_with_holes(
    segmenter: dict[str, Any], decoder: dict[str, Any]
) -> None:
    model, batch = tiny_model(segmenter, decoder=decoder, training=BOTH), collate(PAIRS)
    torch.manual_seed(3)
    sums = Step(model, model.config.training)(batch)
    values = gradients(model)
    torch.manual_seed(3)
    spared = model.segmenter.cut_after
    assert len(spared) == (2 if segmenter is not LOOKUP else 0)
    holed = replace(batch, src=dropped(batch.src, 0.4, spared), trg_in=dropped(batch.trg_in, 0.4))
    assert (holed.src == UNK).any()
    assert (holed.trg_in == UNK).any()
    expected = Step(model, replace_shares(model, 0.0))(holed)
    assert torch.equal(sums, expected)
    for name, value in gradients(model).items():
        assert torch.equal(value, values[name]), name
    table = next(p.grad for name, p in model.segmenter.named_parameters() if "embedding" in name)
    assert table[UNK].any(), "what stands for unknown symbols learns"


def replace_shares(model: Translator, share: float) -> Any:
    return model.config.training.model_copy(update=dict.fromkeys(BOTH, share))


def test_without_it_nothing_is_drawn_and_the_same_tensor_is_read() -> None:
    symbols, state = torch.randint(12, (3, 5)), torch.get_rng_state()
    assert dropped(symbols, 0.0, (5,)) is symbols
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("side", ["src", "trg"])
def test_the_sides_have_shares_of_their_own(side: str) -> None:
    model = tiny_model(training={f"{side}_token_dropout": 0.5})
    with mock.patch.object(steps, "dropped", side_effect=dropped) as calls:
        Step(model, model.config.training)(collate(PAIRS))
    shares = {"src": 0.0, "trg": 0.0, side: 0.5}
    assert [call.args[1] for call in calls.call_args_list] == [shares["src"], shares["trg"]]


def test_in_parts_every_part_has_holes_of_its_own() -> None:
    model, holes = tiny_model(training=BOTH), []
    whole = collate(PAIRS[:1] * 8).as_part()

    def noted(symbols: Tensor, *given: Any) -> Tensor:
        holes.append(dropped(symbols, *given))
        return holes[-1]

    torch.manual_seed(0)
    with mock.patch.object(steps, "dropped", noted):
        Step(model, model.config.training)([whole.rows(slice(0, 4)), whole.rows(slice(4, 8))])
    assert [len(part) for part in holes] == [4] * 4
    assert not torch.equal(holes[0], holes[2])
    assert not torch.equal(holes[1], holes[3])


@pytest.mark.parametrize("objective", ["plain", "risk"])
def test_a_stopped_run_ends_as_an_undisturbed_one_and_another_share_as_another(
    corpus: Path, tmp_path: Path, objective: str
) -> None:
    shares = ("training.src_token_dropout=0.2", "training.trg_token_dropout=0.1")
    risk = ("training.risk_candidates=2", "training.risk_after=5") if objective == "risk" else ()
    config = configured(corpus, "word", *shares, *risk)
    whole = check_resumed(config, tmp_path, 3, 6)
    if objective == "plain":
        run(configured(corpus, "word"), tmp_path / "none")
        assert outcome(tmp_path / "none")["state"] != outcome(whole)["state"]
        with pytest.raises(InputError, match=r"training\.src_token_dropout"):
            run(configured(corpus, "word"), whole)


def test_evaluation_reads_the_text_as_it_is() -> None:
    texts = ["abc", "ffe", "dab"]
    models = [tiny_model(training=training) for training in ({}, BOTH)]
    for model in models:
        torch.manual_seed(1)
        model.train()  # even then: only steps of training have holes
    torch.manual_seed(1)
    assert models[0].translate(texts) == models[1].translate(texts)
    batch = collate(PAIRS)
    assert torch.equal(models[0](batch).total, models[1](batch).total)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("segmenter", [LOOKUP, ACT], ids=["lookup", "act"])
def test_replayed_graphs_draw_anew(segmenter: dict[str, Any]) -> None:
    model = tiny_model(segmenter, training=BOTH).float().cuda()
    step, batch = Step(model, model.config.training), padded(PAIRS, np.arange(8))
    losses = {float(step(batch, update)[0]) for update in range(12)}
    assert step.graphs is not None
    assert len(step.graphs) > 0
    assert len(losses) > 8
    seeded = []
    for _ in range(2):
        torch.manual_seed(5)
        seeded.append([float(step(batch, update)[0]) for update in range(4)])
    assert seeded[0] == pytest.approx(seeded[1], rel=1e-5)
