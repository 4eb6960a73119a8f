"""Places as rotations and as sinusoids: a plain loop, distances alone, and far from the start."""

import math

import pytest
import torch
from helpers import close
from hypothesis import given
from hypothesis import strategies as st

from caesura.kernels.rotation import rotated
from caesura.layers.positions import rotation, sinusoids


def turned(features: list[float], place: float) -> list[float]:
    """Each pair of features as a complex number, turned by the pair's angle."""
    half = len(features) // 2
    result = [0.0] * len(features)
    for i in range(half):
        angle = place / 10_000 ** (2 * i / len(features))
        x, y = features[i], features[half + i]
        result[i] = x * math.cos(angle) - y * math.sin(angle)
        result[half + i] = x * math.sin(angle) + y * math.cos(angle)
    return result


@given(
    seed=st.integers(0, 99),
    half=st.integers(1, 5),
    places=st.lists(st.integers(0, 100_000), min_size=1, max_size=4),
)
def test_rotation_is_a_loop_over_pairs_of_features(seed: int, half: int, places: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(2, len(places), 2, 3, 2 * half, generator=generator, dtype=torch.float64)
    result = rotated(features, rotation(torch.tensor(places), 2 * half, torch.float64))
    for b in range(2):
        for s, place in enumerate(places):
            rows = features[b, s].flatten(0, 1).tolist()
            expected = torch.tensor([turned(row, place) for row in rows], dtype=torch.float64)
            close(result[b, s].flatten(0, 1), expected, 1e-9)


def test_a_place_of_its_own_for_every_sentence() -> None:
    places = torch.tensor([[0, 3, 4], [2, 2, 9]])
    features = torch.randn(2, 3, 2, 1, 6, dtype=torch.float64)
    together = rotated(features, rotation(places, 6, torch.float64))
    for b in range(2):
        close(together[b], rotated(features[b], rotation(places[b], 6, torch.float64)))


@given(st.integers(0, 10_000), st.integers(-50, 50), st.integers(0, 10_000))
def test_products_of_rotated_vectors_depend_on_their_distance_alone(
    place: int, distance: int, other: int
) -> None:
    one, two = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def product(at: int) -> torch.Tensor:
        left, right = (rotation(torch.tensor(n), 8, torch.float64) for n in (at, at + distance))
        return (rotated(one, left) * rotated(two, right)).sum()

    close(product(place), product(other), 1e-9)


@pytest.mark.parametrize("size", [2, 6, 16])
def test_sinusoids_are_those_of_the_paper(size: int) -> None:
    result = sinusoids(torch.tensor([0, 1, 7, 12_345]), size)
    for row, place in zip(result.tolist(), (0, 1, 7, 12_345), strict=True):
        angles = [place / 10_000 ** (2 * i / size) for i in range(size // 2)]
        expected = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        assert row == pytest.approx(expected, abs=1e-9)


def test_in_bfloat16_far_places_are_as_exact_as_near_ones() -> None:
    places = [0, 1, 8, 1_000_000, 1_000_001]
    cosines, sines = rotation(torch.tensor(places), 2, torch.bfloat16)
    for values, function in ((cosines, math.cos), (sines, math.sin)):
        expected = torch.tensor([function(place) for place in places]).bfloat16()
        assert values[:, 0, 0, 1].equal(expected)
