"""The GRU of characters: equal to a loop in exact arithmetic, the same in any batch and any order of sums."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from caesura.data import character_gru, character_gru_training
from caesura.data.character_gru import EMBEDDING, ENTROPY, EXACT, LARGEST, STATE, GruModel, shapes
from caesura.data.character_gru_training import train_gru

ALPHABET = " abcdä東"
TEXTS = ["abc", "", "d", "cab dab", "ää 東 x☃", "a" * 30, "bad cab bad"]
texts_of_any = st.lists(st.text(st.sampled_from([*ALPHABET, "☃"]), max_size=9), max_size=6)


def random_model(seed: int, size: int = 5, scale: float = 1.0) -> GruModel:
    rng = np.random.default_rng(seed)
    alphabet = np.array(sorted(map(ord, ALPHABET)), np.uint32)
    sizes = shapes(len(alphabet) + 2, size).items()
    return GruModel(alphabet, {name: np.float32(scale * rng.normal(size=shape)) for name, shape in sizes})


def plain_entropies(model: GruModel, text: str) -> list[float]:
    """The formula, character by character, with sums of whole numbers as Python has them."""
    w, size = model.weights, model.size
    alphabet = model.alphabet.tolist()
    numbers = [1, *(alphabet.index(ord(c)) + 2 if ord(c) in alphabet else 0 for c in text[:-1])]

    def products(weights: np.ndarray, bias: np.ndarray, state: list[int]) -> list[np.float32]:
        values = []
        for row, b in zip(weights, bias, strict=True):
            total = max(1.0, math.fsum(abs(float(value)) for value in row))
            bits = math.floor(math.log2((EXACT / STATE - size / 2) / total))
            whole = [round(float(value) * 2.0**bits) for value in row]
            exact = sum(a * h for a, h in zip(whole, state, strict=True))
            assert sum(map(abs, whole)) * STATE <= EXACT
            values.append(np.float32(exact) * np.float32(2.0**-bits / STATE) + b)
        return values

    def near(value: np.float32, function: object) -> float:
        place = min(max(round(float(value * np.float32(512))), -16 * 512), 16 * 512)
        return function(place / 512)  # type: ignore[operator]

    def inputs(number: int, unit: int) -> np.float32:
        pairs = zip(w["embedding"][number].tolist(), w["input"][unit].tolist(), strict=True)
        total = math.fsum(a * b for a, b in pairs) + float(w["input_bias"][unit])
        return np.float32(round(total * ENTROPY) / ENTROPY)

    state, values = [0] * size, []
    for number in numbers[: len(text)]:
        hidden = products(w["hidden"], w["hidden_bias"], state)
        after = []
        for j in range(size):

            def sigmoid(x: float) -> np.float32:
                return np.float32(round(ENTROPY / (1 + math.exp(-x))) / ENTROPY)

            r = near(inputs(number, j) + hidden[j], sigmoid)
            z = near(inputs(number, size + j) + hidden[size + j], sigmoid)
            inner = inputs(number, 2 * size + j) + r * hidden[2 * size + j]
            n = np.float32(near(inner, lambda x: round(STATE * math.tanh(x))))
            after.append(round(float(n + z * (np.float32(state[j]) - n))))
        state = after
        logits = [float(value) for value in products(w["output"], w["output_bias"], state)]
        shares = [math.exp(value - max(logits)) for value in logits]
        shares = [value / math.fsum(shares) for value in shares]
        entropy = -math.fsum(p * math.log2(p) for p in shares if p)
        values.append(round(entropy * ENTROPY) / ENTROPY)
    return values


@settings(max_examples=15)
@given(seed=st.integers(0, 99), scale=st.sampled_from([0.1, 0.5, 1.5]))
def test_it_is_the_plain_loop(seed: int, scale: float) -> None:
    model = random_model(seed, size=3, scale=scale)
    for text, values in zip(TEXTS[:5], model.entropies(TEXTS[:5]), strict=True):
        assert values.tolist() == pytest.approx(plain_entropies(model, text), abs=1.5 / ENTROPY)


@settings(max_examples=25)
@given(texts=texts_of_any, seed=st.integers(0, 99), rows=st.integers(1, 4))
def test_a_text_has_the_same_entropies_alone_and_in_company(texts: list[str], seed: int, rows: int) -> None:
    model, before = random_model(seed), character_gru._ROWS
    alone = [model.entropies([text])[0] for text in texts]
    try:
        character_gru._ROWS = rows
        for some in (texts, texts[::-1], [*texts, "dab " * 9]):
            together = dict(zip(some, model.entropies(some), strict=True))
            assert all(
                together[text].tobytes() == row.tobytes() for text, row in zip(texts, alone, strict=True)
            )
    finally:
        character_gru._ROWS = before


def test_the_order_in_which_units_are_summed_makes_no_difference() -> None:
    model = random_model(3, size=48, scale=0.7)
    order = np.random.default_rng(0).permutation(48)
    gates = np.concatenate([order, 48 + order, 96 + order])
    w = model.weights
    moved = {name: w[name][gates] for name in ("input", "input_bias", "hidden_bias")}
    moved |= {"hidden": w["hidden"][gates][:, order], "output": w["output"][:, order]}
    other = GruModel(model.alphabet, w | moved)
    for one, two in zip(model.entropies(TEXTS), other.entropies(TEXTS), strict=True):
        assert one.tobytes() == two.tobytes()


def test_it_is_near_the_gru_of_torch_without_rounding() -> None:
    model = random_model(1, size=16, scale=0.3)
    w = {name: torch.from_numpy(value).double() for name, value in model.weights.items()}
    gru = torch.nn.GRU(EMBEDDING, 16, batch_first=True).double()
    names = ("input", "hidden", "input_bias", "hidden_bias")
    gru.load_state_dict(dict(zip(gru.state_dict(), (w[name] for name in names), strict=True)))
    text = "bad cab bad"
    numbers = torch.tensor([1, *(sorted(ALPHABET).index(c) + 2 for c in text[:-1])])
    states, _ = gru(w["embedding"][numbers][None])
    shares = (states[0] @ w["output"].T + w["output_bias"]).softmax(-1)
    expected = -(shares * shares.log2()).sum(-1)
    assert model.entropies([text])[0].tolist() == pytest.approx(expected.tolist(), abs=0.01)


def test_the_largest_weights_are_exact_and_larger_ones_refused() -> None:
    weights = random_model(0).weights
    largest = {name: np.sign(value) * np.float32(LARGEST) for name, value in weights.items()}
    model = GruModel(random_model(0).alphabet, largest)
    assert np.abs(model._hidden).sum(0).max() * STATE <= EXACT
    assert all(np.isfinite(values).all() for values in model.entropies(TEXTS))
    for wrong in (np.nan, np.inf, -1001):
        other = np.full_like(weights["output_bias"], wrong)
        with pytest.raises(ValueError, match="weights"):
            GruModel(model.alphabet, weights | {"output_bias": other})


def test_training_is_repeatable_leaves_the_random_state_and_learns() -> None:
    lines = ["ab ab ab", "ab ab", "ab ab ab ab"] * 4
    before = torch.get_rng_state()
    listener: list[int] = []
    one, two = (train_gru(lines, 4, 3, progress=listener.append) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(np.array_equal(one.weights[name], two.weights[name]) for name in one.weights)
    assert listener == [0, 12, 24] * 2
    learnt = train_gru(lines, 16, 160).entropies(["ab ab ab"])[0]
    assert learnt.max() < 1.5 < math.log2(5)


def test_rare_characters_are_unknown_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    model = train_gru(["abba", "cab", "☃"], 2, 1)
    assert model.alphabet.tolist() == [ord("a"), ord("b")]
    assert train_gru(["abc"], 2, 1).alphabet.tolist() == [ord("a"), ord("b"), ord("c")]
    monkeypatch.setattr(character_gru_training, "CLASSES", 1)
    assert train_gru(["abba", "cab", "☃"], 2, 1).alphabet.tolist() == [ord("a")]
