"""The Transformer encoder is PyTorch's; padding, batch mates and NaN behind a sentence do not matter."""

from typing import Any

import pytest
import torch
from helpers import close
from hypothesis import given, settings
from hypothesis import strategies as st
from theirs import gradients, layer, products
from torch import Tensor, nn
from wording import refuses

from caesura.encoders.transformer import TransformerEncoder
from caesura.layers.masks import positions_mask
from caesura.layers.positions import sinusoids
from caesura.segmenters.base import Cuts, Segments

FORMS = [(p, q) for p in ("rotary", "sinusoidal") for q in ("segments", "symbols")]
every_form = pytest.mark.parametrize(("positions", "places"), FORMS)


def made(layers: int = 2, input_dim: int = 8, seed: int = 0, **options: Any) -> TransformerEncoder:
    torch.manual_seed(seed)
    encoder = TransformerEncoder(input_dim, 8, 2, 7, layers, 0.0, **options).double()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return encoder


def some(lengths: list[int], spare: int = 2, width: int = 8, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors [B, S, D] with NaN beyond a sentence's end, lengths [B], and rising places [B, S]."""
    generator = torch.Generator().manual_seed(seed)
    sizes, S = torch.tensor(lengths), max(lengths) + spare
    vectors = torch.randn(len(lengths), S, width, generator=generator, dtype=torch.float64)
    vectors[~positions_mask(sizes, S)] = torch.nan
    places = torch.randint(1, 5, (len(lengths), S), generator=generator).cumsum(1)
    return vectors, sizes, places


@pytest.mark.parametrize(("dtype", "within"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("lengths", [[5, 5, 5], [6, 1, 3]])
def test_it_is_pytorchs_own_in_values_and_all_gradients(
    dtype: torch.dtype, within: float, lengths: list[int]
) -> None:
    encoder = made(3, positions="sinusoidal").to(dtype)
    vectors, sizes, _ = some(lengths, 0)
    ours, theirs = (vectors.nan_to_num(0).to(dtype).requires_grad_() for _ in range(2))
    layers = [layer(block, nn.TransformerEncoderLayer) for block in encoder.blocks]
    mask = positions_mask(sizes, max(lengths))
    states = theirs + sinusoids(torch.arange(max(lengths)), 8).to(dtype)
    for one in layers:
        states = one(states, src_key_padding_mask=~mask)
    norm = nn.LayerNorm(8, dtype=dtype)
    norm.load_state_dict(encoder.norm.state_dict())
    expected, encoded = norm(states), encoder(ours, sizes)
    close(encoded.states[mask], expected[mask], within, "states")
    assert encoded.summary is None
    probe = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    for result in (encoded.states, expected):
        (result * probe)[mask].sum().backward()
    assert ours.grad is not None
    assert theirs.grad is not None
    close(ours.grad[mask], theirs.grad[mask], within, "vectors")
    for i, (block, one) in enumerate(zip(encoder.blocks, layers, strict=True)):
        for name, gradient, wanted in gradients(block, one):
            assert wanted.any()
            close(gradient, wanted, within, f"{name} of layer {i}")
    for name, parameter in norm.named_parameters():
        close(encoder.norm.get_parameter(name).grad, parameter.grad, within, f"norm.{name}")


@every_form
@settings(max_examples=15)
@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_padding_and_batch_mates_do_not_change_what_it_returns(
    positions: Any, places: Any, lengths: list[int], seed: int
) -> None:
    encoder = made(seed=seed, positions=positions, places=places, input_dim=5)
    vectors, sizes, at = some(lengths, width=5, seed=seed)
    together = encoder(vectors, sizes, at if places == "symbols" else None)
    assert together.states.isfinite().all()
    total = torch.zeros((), dtype=torch.float64)
    alone = []
    for b, n in enumerate(lengths):
        positions = at[b : b + 1, :n] if places == "symbols" else None
        one = encoder(vectors[b : b + 1, :n], sizes[b : b + 1], positions)
        close(together.states[b, :n], one.states[0], what="states")
        alone.append(one.states[0].square().sum())
        total = total + together.states[b, :n].square().sum()
    parameters = [*encoder.parameters()]
    if any(lengths):
        ours = torch.autograd.grad(total, parameters)
        for one, other in zip(ours, torch.autograd.grad(sum(alone), parameters), strict=True):
            close(one, other, 1e-9)


def test_it_sees_order_and_distances_only_where_places_say_so() -> None:
    vectors, sizes, _ = some([4], 0)
    near, far = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0, 1, 2, 9]])
    for positions in ("rotary", "sinusoidal"):
        encoder = made(positions=positions, places="symbols")
        states = [encoder(vectors, sizes, at).states for at in (near, far)]
        assert (states[0] - states[1]).abs().max() > 1e-3
        close(made(positions=positions)(vectors, sizes).states, states[0])
    shifted = made(places="symbols")
    close(shifted(vectors, sizes, near + 77).states, shifted(vectors, sizes, near).states, 1e-9)
    swapped = made()(vectors.flip(1), sizes).states.flip(1)
    assert (swapped - made()(vectors, sizes).states).abs().max() > 1e-3


def test_places_of_segments_are_those_of_their_last_symbols() -> None:
    ends = torch.tensor([[0, 1, 1, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0], [0] * 7], dtype=torch.bool)
    for size in (3, 5):
        segments = Segments(torch.zeros(3, size, 2), ends.sum(1), Cuts(ends, ends.float()))
        assert segments.places[:, :3].tolist() == [[1, 2, 5], [2, 7, 7], [7, 7, 7]]
        assert (segments.places[:, 3:] == 7).all()
    empty = Segments(torch.zeros(0, 0, 2), ends[:0].sum(1), Cuts(ends[:0], ends[:0].float()))
    assert empty.places.shape == (0, 0)
    nothing = Segments(torch.zeros(3, 2, 2), ends.sum(1), Cuts(ends[:, :0], ends[:, :0].float()))
    assert nothing.places.tolist() == [[0, 0]] * 3


def test_places_that_count_symbols_have_to_be_given() -> None:
    vectors, sizes, _ = some([4])
    with refuses(ValueError, "places"):
        made(places="symbols")(vectors, sizes)


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"size": 8, "heads": 3}, "heads"),
        ({"size": 6, "heads": 2}, "heads"),
        ({"size": 9, "heads": 3, "positions": "sinusoidal"}, "size"),
        ({"size": 8, "heads": 2000}, "heads"),
        ({"size": 8, "heads": 0}, "heads"),
        ({"size": 8, "heads": 2, "num_layers": 0}, "num_layers"),
        ({"size": 8, "heads": 2, "feed_forward": 0}, "feed_forward"),
        ({"size": 8, "heads": 2, "dropout": 1.0}, "dropout"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options: dict[str, Any], key: str) -> None:
    with refuses(ValueError, key):
        TransformerEncoder(4, **{"feed_forward": 7, **options})


def test_its_operations_are_those_of_its_products() -> None:
    encoder, S = made(3, input_dim=5), 11
    vectors, sizes, _ = some([S], 0, 5)
    assert (
        encoder.flops(S) == products(encoder, vectors, sizes) + 3 * 2 * 2 * S * S * 8
    )  # scores and contexts
