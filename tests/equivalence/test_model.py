"""The translator and its parts: padded = unpadded, forward = steps = equations."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from helpers import ACT, LOOKUP, RECURRENT, close, sentences, tiny_model
from torch import nn

from caesura.data.batching import collate
from caesura.decoders.base import Decoded
from caesura.decoders.recurrent import RecurrentDecoder
from caesura.encoders.base import Encoded
from caesura.encoders.recurrent import RecurrentEncoder


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_encoder_is_a_bidirectional_gru_whose_final_states_are_the_summary(layers: int) -> None:
    torch.manual_seed(layers)
    encoder = RecurrentEncoder(4, 3, layers).double()
    theirs = nn.GRU(4, 3, layers, batch_first=True, bidirectional=True).double()
    weights = {
        name.replace("_l0", f"_l{layer}{end}"): value
        for end, directions in (("", encoder.forwards), ("_reverse", encoder.backwards))
        for layer, gru in enumerate(directions)
        for name, value in gru.state_dict().items()
    }
    theirs.load_state_dict(weights)
    vectors = torch.randn(1, 6, 4, dtype=torch.float64)
    encoded, (states, finals) = encoder(vectors, torch.tensor([6])), theirs(vectors)
    close(encoded.states, states, what="states")
    close(encoded.summary[0], finals[-2:].flatten(), what="summary")  # the top layer's, forward and backward


def memory(lengths: list[int], summary_dim: int, seed: int = 0) -> Encoded:
    """Random encoder states [B, S, 4], with garbage beyond each sentence's end."""
    torch.manual_seed(seed)
    states = torch.randn(len(lengths), max(lengths), 4, dtype=torch.float64)
    return Encoded(states, torch.tensor(lengths), torch.randn(len(lengths), summary_dim, dtype=torch.float64))


def tiny_decoder(summary_dim: int = 5) -> RecurrentDecoder:
    torch.manual_seed(0)
    decoder = RecurrentDecoder(
        8, memory_dim=4, summary_dim=summary_dim, embedding_dim=3, hidden_size=5, attention_size=6
    ).double()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(2)
    return decoder


TARGETS = torch.tensor([[2, 4, 5, 6, 7, 4], [2, 7, 7, 0, 0, 0], [2, 1, 5, 5, 4, 0]])  # [B, U]
TARGET_LENGTHS = torch.tensor([6, 3, 5])


@pytest.mark.parametrize("summary_dim", [5, 7])  # the decoder's own size, and one that needs a projection
def test_the_decoder_at_once_is_the_decoder_step_by_step_in_values_and_gradients(summary_dim: int) -> None:
    decoder, encoded = tiny_decoder(summary_dim), memory([4, 2, 6], summary_dim)
    at_once = decoder(encoded, TARGETS, TARGET_LENGTHS)
    state, steps = decoder.start(encoded), []
    for symbols in TARGETS.split(1, 1):
        step, state = decoder.step(state, symbols)
        steps.append(step)
    logits = torch.cat([step.logits for step in steps], 1)
    close(at_once.logits, logits, what="logits")
    close(at_once.attention, torch.cat([step.attention for step in steps], 1), what="attention")
    assert not at_once.penalty.any()
    probe = torch.randn(at_once.logits.shape, dtype=torch.float64)
    names, parameters = zip(*decoder.named_parameters(), strict=True)
    ours = torch.autograd.grad((at_once.logits * probe).sum(), parameters)
    theirs = torch.autograd.grad((logits * probe).sum(), parameters)
    for name, one, other in zip(names, ours, theirs, strict=True):
        assert other.any(), name
        close(one, other, what=name)


def test_attention_sums_to_one_and_is_nothing_on_padding() -> None:
    decoded = tiny_decoder()(memory([4, 2, 6], 5), TARGETS, TARGET_LENGTHS)
    close(decoded.attention.sum(2), torch.ones(3, 6, dtype=torch.float64))
    assert (decoded.attention >= 0).all()
    assert not decoded.attention[0, :, 4:].any()
    assert not decoded.attention[1, :, 2:].any()
    assert decoded.attention[1, :, :2].std() > 0.01  # it does choose


@pytest.mark.parametrize("summary_dim", [5, 7])
def test_the_decoder_is_the_equations_of_the_paper(summary_dim: int) -> None:
    """c_t = A(s_{t-1}), then s_t = GRU(s_{t-1}, [E y_{t-1}; c_t]), then W s_t + b: one sentence at a time."""
    decoder, encoded = tiny_decoder(summary_dim), memory([4, 2, 6], summary_dim)
    decoded = decoder(encoded, TARGETS, TARGET_LENGTHS)
    cell, attention = decoder.cell, decoder.attention
    for b, n in enumerate([4, 2, 6]):
        states = encoded.states[b, :n]
        s = encoded.summary[b]
        if summary_dim != 5:
            assert isinstance(decoder.initial, nn.Linear)
            s = decoder.initial.weight @ s + decoder.initial.bias
        for t in range(int(TARGET_LENGTHS[b])):
            energies = torch.stack(
                [
                    attention.energy.weight[0]
                    @ torch.tanh(attention.query.weight @ s + attention.key.weight @ state)
                    for state in states
                ]
            )
            weights = energies.exp() / energies.exp().sum()
            c = sum(a * state for a, state in zip(weights, states, strict=True))
            x = torch.cat((decoder.embedding.weight[TARGETS[b, t]], c))
            x_r, x_z, x_n = (cell.weight_ih @ x + cell.bias_ih).chunk(3)
            s_r, s_z, s_n = (cell.weight_hh @ s + cell.bias_hh).chunk(3)
            r, z = torch.sigmoid(x_r + s_r), torch.sigmoid(x_z + s_z)
            s = (1 - z) * torch.tanh(x_n + r * s_n) + z * s
            close(decoded.attention[b, t, :n], weights, what=f"attention {b} {t}")
            close(
                decoded.logits[b, t], decoder.output.weight @ s + decoder.output.bias, what=f"logits {b} {t}"
            )


def test_the_hypotheses_of_a_sentence_do_not_see_each_other() -> None:
    decoder, encoded = tiny_decoder(), memory([4, 2], 5)
    symbols = torch.tensor([[[2, 2, 2], [4, 5, 6]], [[2, 2, 2], [7, 1, 4]]]).transpose(0, 1)  # [U, B, K]
    state = decoder.reorder(decoder.start(encoded), torch.arange(2), torch.zeros(2, 3, dtype=torch.long))
    for row in symbols:
        step, state = decoder.step(state, row)
    for k in range(3):
        alone = decoder.start(encoded)
        for row in symbols:
            one, alone = decoder.step(alone, row[:, k : k + 1])
        close(step.logits[:, k : k + 1], one.logits, what="logits")
        assert step.attention is not None
        assert one.attention is not None
        close(step.attention[:, k : k + 1], one.attention, what="attention")


@pytest.mark.parametrize("kept", [[1], [0, 2], [2, 0], [2, 0, 1]])
def test_reordered_sentences_go_on_as_they_would_have(kept: list[int]) -> None:
    decoder, encoded = tiny_decoder(), memory([4, 2, 6], 5)
    _, state = decoder.step(decoder.start(encoded), torch.tensor([[2], [2], [2]]))
    following = torch.tensor([[4], [5], [6]])
    expected, _ = decoder.step(state, following)
    moved = decoder.reorder(state, torch.tensor(kept), torch.zeros(len(kept), 1, dtype=torch.long))
    step, _ = decoder.step(moved, following[kept])
    close(step.logits, expected.logits[kept], what="logits")


PAIRS = list(zip(sentences(4, seed=1), sentences(4, seed=2, vocab_size=9), strict=True))


@pytest.mark.parametrize("normalization", ["symbols", "sentences"])
@pytest.mark.parametrize("segmenter", [LOOKUP, ACT], ids=["lookup", "act"])
def test_the_named_parts_of_the_loss_add_up(segmenter: dict[str, Any], normalization: str) -> None:
    model = tiny_model(segmenter, training={"normalization": normalization})
    batch = collate(PAIRS)
    loss = model(batch)
    assert loss.sentences == 4
    assert loss.symbols == sum(len(trg) + 1 for _, trg in PAIRS)
    divisor = {"symbols": int(loss.symbols), "sentences": 4}[normalization]
    tau = segmenter.get("tau", 0.0)
    segments, encoded = model.encode(batch.src, batch.src_lengths)
    penalty = segments.penalty.mean()
    assert (penalty != 0) == (segmenter is ACT)
    close(loss.auxiliary, tau * penalty)
    close(loss.total, loss.cross_entropy / divisor + loss.auxiliary)
    assert [*loss.counts] == [*model.counted]
    # Cross-entropy, literally: the logarithm of each reference symbol's probability, <pad> left out.
    assert batch.trg_in is not None
    assert batch.trg_out is not None
    assert batch.trg_lengths is not None
    probabilities = model.decoder(encoded, batch.trg_in, batch.trg_lengths).logits.softmax(2)
    literal = sum(
        -probabilities[b, u, y].log() for b, (_, trg) in enumerate(PAIRS) for u, y in enumerate([*trg, 3])
    )
    close(loss.cross_entropy, torch.as_tensor(literal))
    if segmenter is ACT:
        close(loss.counts["penalty"] / loss.counts["penalty of"], penalty)
        remainders = [
            segments.weights[b][segments.ends[b]].sum() / (len(src) + 1) for b, (src, _) in enumerate(PAIRS)
        ]
        close(loss.counts["remainder"] / loss.counts["remainder of"], torch.stack(remainders).mean())


def test_the_decoders_penalty_is_weighed_by_its_own_tau() -> None:
    plain = tiny_model()(collate(PAIRS))
    model = tiny_model(decoder=RECURRENT | {"tau": 0.5})

    def penalise(_: nn.Module, __: Any, decoded: Decoded) -> Decoded:
        return replace(decoded, penalty=torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64))

    model.decoder.register_forward_hook(penalise)
    loss = model(collate(PAIRS))
    close(loss.auxiliary, torch.tensor(0.5 * 3.0, dtype=torch.float64))
    close(loss.total, plain.total + 0.5 * 3.0)


@pytest.mark.parametrize("segmenter", [LOOKUP, ACT], ids=["lookup", "act"])
def test_the_loss_of_a_sentence_does_not_depend_on_its_batch(segmenter: dict[str, Any]) -> None:
    model = tiny_model(segmenter)
    together = model(collate(PAIRS))
    alone = [model(collate([pair])) for pair in PAIRS]
    close(together.cross_entropy, torch.stack([loss.cross_entropy for loss in alone]).sum())
    close(together.auxiliary, torch.stack([loss.auxiliary for loss in alone]).mean())
    assert [*together.counts] == [*model.counted]
    for name, count in together.counts.items():
        close(count, torch.stack([loss.counts[name] for loss in alone]).sum(), what=name)


def test_a_segmenting_model_learns_through_every_parameter_but_the_paddings() -> None:
    model = tiny_model(ACT)
    model(collate(PAIRS)).total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name
    for embedding in (model.segmenter.embedding, model.decoder.embedding):
        assert not embedding.weight.grad[0].any()


def test_a_batch_of_empty_sources_has_a_summary_of_zeros() -> None:
    encoder = tiny_model().encoder
    encoded = encoder(torch.zeros(2, 0, 5, dtype=torch.float64), torch.zeros(2, dtype=torch.long))
    assert encoded.states.shape == (2, 0, encoder.output_dim)
    assert not encoded.summary.any()
    assert encoded.summary.shape == (2, encoder.summary_dim)
