"""The Transformer decoder is PyTorch's; steps give what teacher forcing gives, whatever is reordered."""

from typing import Any

import pytest
import torch
from helpers import close
from hypothesis import given, settings
from hypothesis import strategies as st
from theirs import gradients, layer, products
from torch import Tensor, nn
from wording import refuses

from caesura.decoders.transformer import TransformerDecoder
from caesura.encoders.base import Encoded
from caesura.kernels.states import grown
from caesura.layers.masks import positions_mask
from caesura.layers.positions import sinusoids

V, M = 9, 8
FORMS = [{"positions": p, "tied": t} for p in ("rotary", "sinusoidal") for t in (False, True)]
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(map(str, form.values())))


def made(layers: int = 2, memory_dim: int = M, seed: int = 0, **options: Any) -> TransformerDecoder:
    torch.manual_seed(seed)
    decoder = TransformerDecoder(V, memory_dim, 8, 2, 7, layers, 0.0, **options).double()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return decoder


def source(lengths: list[int], width: int = M, seed: int = 0, spare: int = 2) -> Encoded:
    """Random states [B, S, M], with NaN beyond each sentence's end."""
    generator = torch.Generator().manual_seed(seed)
    sizes, S = torch.tensor(lengths), max(lengths) + spare
    states = torch.randn(len(lengths), S, width, generator=generator, dtype=torch.float64)
    states[~positions_mask(sizes, S)] = torch.nan
    return Encoded(states, sizes)


TARGETS = torch.tensor([[2, 4, 5, 6, 7, 4], [2, 7, 7, 0, 0, 0], [2, 1, 5, 5, 4, 0]])  # [B, U]
SIZES = torch.tensor([6, 3, 5])
WITHIN = positions_mask(SIZES, 6)


@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_it_is_pytorchs_own_in_values_and_all_gradients(dtype: torch.dtype, within: float) -> None:
    decoder = made(3, positions="sinusoidal", seed=1).to(dtype)
    encoded = source([4, 2, 6], spare=0)
    here = positions_mask(encoded.lengths, 6)
    ours, theirs = (encoded.states.nan_to_num(0).to(dtype).requires_grad_() for _ in range(2))
    layers = [layer(block, nn.TransformerDecoderLayer) for block in decoder.blocks]
    norm, output, embedding = nn.LayerNorm(8), nn.Linear(8, V), nn.Embedding(V, 8)
    for module, part in ((norm, decoder.norm), (output, decoder.output), (embedding, decoder.embedding)):
        module.to(dtype).load_state_dict(part.state_dict())
    states = embedding(TARGETS) * 8**0.5 + sinusoids(torch.arange(6), 8).to(dtype)
    causal = nn.Transformer.generate_square_subsequent_mask(6, dtype=dtype)
    for one in layers:
        states = one(states, theirs, causal, memory_key_padding_mask=~here, tgt_is_causal=True)
    expected, decoded = output(norm(states)), decoder(Encoded(ours, encoded.lengths), TARGETS, SIZES)
    close(decoded.logits[WITHIN], expected[WITHIN], within, "logits")
    probe = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    for result in (decoded.logits, expected):
        (result * probe)[WITHIN].sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    close(ours.grad[here], theirs.grad[here], within, "source")
    for i, (block, one) in enumerate(zip(decoder.blocks, layers, strict=True)):
        for name, gradient, wanted in gradients(block, one):
            assert wanted.any()
            close(gradient, wanted, within, f"{name} of layer {i}")
    for module, part in ((norm, decoder.norm), (output, decoder.output), (embedding, decoder.embedding)):
        for name, parameter in module.named_parameters():
            close(part.get_parameter(name).grad, parameter.grad, within, name)


@every_form
@pytest.mark.parametrize("memory_dim", [8, 5])
@torch.no_grad()
def test_steps_are_the_teacher_forced_form(form: dict[str, Any], memory_dim: int) -> None:
    decoder, encoded = made(memory_dim=memory_dim, **form), source([4, 2, 6], memory_dim)
    state, steps = decoder.start(encoded, 2), []
    for u in range(6):
        step, state = decoder.step(grown(state, 6) if u == 2 else state, TARGETS[:, u : u + 1])
        steps.append(step.logits)
    at_once = decoder(encoded, TARGETS, SIZES)
    close(torch.cat(steps, 1), at_once.logits)
    assert not at_once.penalty.any()
    assert at_once.logits.std() > 0.3


@torch.no_grad()
@settings(max_examples=25)
@given(data=st.data(), seed=st.integers(0, 99), form=st.sampled_from(FORMS))
def test_steps_go_on_from_whatever_a_search_keeps(
    data: st.DataObject, seed: int, form: dict[str, Any]
) -> None:
    decoder, B = made(seed=seed, **form), data.draw(st.integers(1, 3))
    encoded = source([3, 1, 5][:B], seed=seed)
    state, K = decoder.start(encoded, 9), 1
    read, rows = torch.zeros(B, 1, 0, dtype=torch.long), torch.arange(B)
    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            first, K_new = data.draw(st.integers(0, B - 1)), data.draw(st.sampled_from([K, K, 3]))
            kept = torch.arange(B)[first:] if first else None
            B = B - first
            one = st.lists(st.integers(0, K - 1), min_size=K_new, max_size=K_new)
            parents = torch.tensor(data.draw(st.lists(one, min_size=B, max_size=B)))
            state, K = decoder.reorder(state, kept, parents), K_new
            read, rows = read[first:][torch.arange(B)[:, None], parents], rows[first:]
        row = st.lists(st.integers(0, V - 1), min_size=K, max_size=K)
        symbols = torch.tensor(data.draw(st.lists(row, min_size=B, max_size=B)))
        step, state = decoder.step(state, symbols)
        read = torch.cat((read, symbols[..., None]), 2)
        for k in range(K):
            again = decoder(encoded.rows(rows), read[:, k], torch.full((B,), read.shape[2]))
            close(step.logits[:, k], again.logits[:, -1])


@every_form
def test_padding_and_batch_mates_do_not_change_what_it_returns(form: dict[str, Any]) -> None:
    decoder, sizes = made(**form), [4, 0, 6]
    together = decoder(source(sizes), TARGETS, SIZES)
    assert together.logits.isfinite().all()
    total = (together.logits.square() * WITHIN[..., None]).sum()
    alone = torch.zeros((), dtype=torch.float64)
    for b, n in enumerate(sizes):
        one = Encoded(source(sizes).states[b : b + 1, :n], torch.tensor([n]))
        U = int(SIZES[b])
        single = decoder(one, TARGETS[b : b + 1, :U], SIZES[b : b + 1])
        close(together.logits[b, :U], single.logits[0])
        alone = alone + single.logits.square().sum()
    parameters = [*decoder.parameters()]
    for one, other in zip(*(torch.autograd.grad(x, parameters) for x in (total, alone)), strict=True):
        close(one, other, 1e-9)


@torch.no_grad()
def test_attention_is_a_mean_of_heads_that_can_be_had_one_by_one() -> None:
    decoder, encoded = made(3), source([4, 0, 6])
    heads = decoder.look(encoded, TARGETS)
    assert heads.shape == (3, 3, 2, 6, 8)
    decoded = decoder(encoded, TARGETS, SIZES)
    assert decoded.attention is not None
    close(decoded.attention, heads[:, 1].mean(1))
    within = positions_mask(encoded.lengths, 8)[:, None, None, None]
    assert (heads >= 0).all()
    assert not heads.masked_select(~within).any()
    close(heads.sum(4), (encoded.lengths > 0)[:, None, None, None].expand(heads.shape[:4]).double())
    assert heads[0, :, :, :, :4].std() > 0.01
    with torch.enable_grad():
        assert decoder(encoded, TARGETS, SIZES).attention is None


@torch.no_grad()
def test_where_a_head_looks_is_the_softmax_of_its_products() -> None:
    """One layer and one sentence, head by head; keys that it looks at get their share of the values."""
    decoder, encoded = made(1), source([4], spare=0)
    cross, (heads,) = decoder.blocks[0].cross, decoder.look(encoded, TARGETS[:1])[0]
    inputs: list[Tensor] = []
    handle = cross.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0][0]))
    outputs: list[Tensor] = []
    cross.output.register_forward_pre_hook(lambda module, arguments: outputs.append(arguments[0][0]))
    decoder(encoded, TARGETS[:1], SIZES[:1])
    handle.remove()
    projected = cross.memory(encoded.states[0])
    for n in range(2):
        part = slice(4 * n, 4 * n + 4)
        queries, keys = cross.query(inputs[0])[:, part], projected[:, :8][:, part]
        values = projected[:, 8:][:, part]
        for u in range(6):
            shares = torch.softmax(torch.stack([queries[u] @ key / 2 for key in keys]), 0)
            close(heads[n, u], shares, what=f"head {n}, symbol {u}")
            close(outputs[0][u, part], shares @ values, what=f"context of head {n}, symbol {u}")


def test_a_tied_output_layer_has_no_matrix_of_its_own() -> None:
    plain, tied = made(), made(tied=True)
    names = {name for name, _ in plain.named_parameters()} - {name for name, _ in tied.named_parameters()}
    assert names == {"output.weight"}
    state = tied.norm(torch.randn(8, dtype=torch.float64))
    close(tied.output(state, tied.embedding), tied.embedding.weight @ state + tied.output.bias)


@torch.no_grad()
def test_fresh_logits_are_of_the_size_of_one() -> None:
    for tied in (False, True):
        torch.manual_seed(0)
        decoder = TransformerDecoder(500, 64, 64, 4, 128, 2, 0.0, tied=tied)
        assert 0.8 < float(decoder.embedding(torch.arange(500)).std()) < 1.2
        encoded = Encoded(torch.randn(4, 7, 64), torch.full((4,), 7))
        spread = decoder(encoded, torch.randint(500, (4, 9)), torch.full((4,), 9)).logits.std()
        assert 0.5 < float(spread) < 2.5


def test_its_operations_are_those_of_its_products() -> None:
    decoder, S, U = made(3, memory_dim=5), 11, 6
    counted = products(decoder, source([S], 5, spare=0), TARGETS[:1], SIZES[:1])
    counted += 3 * 2 * S * 5 * 16  # keys and values of the source, for all layers at once
    attended = U * (U + 1) // 2 + U * S
    assert decoder.flops(S, U, U) == counted + 2 * U * 8 * V + 3 * 2 * 2 * 8 * attended


@pytest.mark.parametrize("options", [{"heads": 3}, {"size": 6, "heads": 2}, {"num_layers": 65}])
def test_sizes_that_do_not_fit_are_refused(options: dict[str, Any]) -> None:
    with refuses(ValueError, next(reversed(options))):
        TransformerDecoder(V, M, **{"size": 8, "heads": 2, "feed_forward": 7, **options})
