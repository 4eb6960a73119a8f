"""Transformers behind every segmenter, and beside recurrent parts: whole models."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import (
    ACT,
    ACT_DECODER,
    BIGRU,
    LOOKUP,
    RECURRENT,
    SIZES,
    TRANSFORMER,
    close,
    make_config,
    sentences,
    tiny_model,
    vocabulary,
)
from torch import Tensor
from wording import refuses

from caesura.components import resolve
from caesura.config import load_config
from caesura.data.batching import collate
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.search.beam import beam_search
from caesura.search.forced import forced_scores
from caesura.training.step import SUMS, Step

PAIRS = list(zip(sentences(6, seed=1, longest=14), sentences(6, seed=2, vocab_size=9), strict=True))
READER = {"type": "bigru", "embedding_dim": 4, "size": 3}
SEGMENTERS: dict[str, dict[str, Any]] = {
    "lookup": LOOKUP,
    "act": ACT,
    "hmrnn": {"type": "hmrnn", "embedding_dim": 4, "size": 3, "output_dim": 5, "rate": {"target": 2.0}},
    "fixed": {"reader": READER, "cutter": {"type": "fixed", "k": 2.5}, "pooling": "mean"},
    "cif": {"reader": READER, "cutter": "cif", "pooling": "weighted", "rate": {"target": 2.0}},
    "routing": {"reader": READER, "cutter": "routing", "pooling": "last"},
    "near": {
        "reader": {"type": "transformer", "window": 2} | SIZES,
        "cutter": "cif",
        "pooling": "weighted",
        "rate": {"target": 2.0},
    },
    "bernoulli": {"reader": READER, "cutter": {"type": "bernoulli", "cuttings": 3}, "pooling": "mean"},
}
BY_SYMBOLS = TRANSFORMER | {"places": "symbols"}
SINES = TRANSFORMER | {"positions": "sinusoidal"}
MIXES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "both": (TRANSFORMER, TRANSFORMER),
    "both, by symbols": (BY_SYMBOLS, TRANSFORMER | {"tied": True}),
    "sinusoidal, by symbols": (SINES | {"places": "symbols"}, SINES),
    "encoder": (BY_SYMBOLS, RECURRENT),
    "encoder, act": (TRANSFORMER, ACT_DECODER),
    "decoder": (BIGRU, TRANSFORMER),
}
every_mix = pytest.mark.parametrize("mix", MIXES)


def model_of(segmenter: str = "cif", mix: str = "both", **sections: Any) -> Translator:
    """A random model in float64."""
    encoder, decoder = MIXES[mix]
    options = SEGMENTERS[segmenter]
    options = options if "type" in options else {"type": "parts"} | options
    return tiny_model(options, 0, 1.5, decoder, encoder, **sections)


def gradients(model: Translator) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("segmenter", "mix"),
    [
        *((s, "both, by symbols") for s in SEGMENTERS),
        *((s, m) for s in ("act", "fixed", "near") for m in MIXES if m != "both, by symbols"),
    ],
)
def test_the_loss_and_gradients_of_a_batch_are_those_of_its_sentences(segmenter: str, mix: str) -> None:
    model = model_of(segmenter, mix, training={"normalization": "sentences"})
    model(collate(PAIRS)).total.backward()
    together = gradients(model)
    model.zero_grad()
    total = sum((model(collate([pair])).total / len(PAIRS) for pair in PAIRS), torch.zeros(()))
    assert isinstance(total, Tensor)
    total.backward()
    alone = gradients(model)
    assert alone.keys() == together.keys()
    for part in ("encoder", "decoder"):
        assert all(together[name].any() for name, _ in model.named_parameters() if name.startswith(part))
    for name, value in alone.items():
        close(together[name], value, 1e-10, name)


@every_mix
@pytest.mark.parametrize("segmenter", ["cif", "act", "near"])
def test_padding_in_every_direction_changes_neither_sums_nor_gradients(segmenter: str, mix: str) -> None:
    model = model_of(segmenter, mix)
    step, values = Step(model, model.config.training), []
    for shape in ((0, 0, 0), (9, 40, 17)):
        sums = step(collate(PAIRS, shape=shape))
        values.append(gradients(model) | dict(zip((*SUMS, *model.counted), sums, strict=True)))
    assert values[0].keys() == values[1].keys()
    for name, value in values[0].items():
        close(values[1][name], value, 1e-10, name)


@pytest.mark.parametrize(
    ("segmenter", "mix"),
    [
        *(
            pytest.param(s, "both", marks=() if s in ("act", "near") else pytest.mark.slow)
            for s in SEGMENTERS
        ),
        *(("fixed", m) for m in MIXES if m != "both"),
    ],
)
def test_a_sentence_translates_the_same_alone_and_in_company(segmenter: str, mix: str) -> None:
    model = model_of(segmenter, mix, testing={"max_output_extra": 5})
    texts = ["abcabcah", "a", "", "hgfedcb", "hh"]
    for beam in (1, 3):
        together = model.process(texts, model.searcher(beam))
        alone = [model.process([text], model.searcher(beam))[0] for text in texts]
        for one, other in zip(together, alone, strict=True):
            assert [h.symbols for h in one.hypotheses] == [h.symbols for h in other.hypotheses]
            scores = [h.log_prob for h in other.hypotheses]
            assert [h.log_prob for h in one.hypotheses] == pytest.approx(scores, abs=1e-10)


@every_mix
def test_a_model_folder_gives_the_model_back(mix: str, tmp_path: Path) -> None:
    model = model_of("fixed", mix).float()
    model.save_pretrained(tmp_path / "model")
    again = Translator.from_pretrained(tmp_path / "model")
    assert [*again.state_dict()] == [*model.state_dict()]
    texts = ["abcab", "hgfeddca"]
    assert again.translate(texts) == model.translate(texts)
    assert again.score(texts, ["ab", "c"]) == model.score(texts, ["ab", "c"])


def sharing(tied: bool, share: bool = True) -> Translator:
    """A model of bytes whose sides look symbols up in one table, or in two."""
    side = {"lang": "xx", "level": "byte"}
    data = {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side}
    decoder = TRANSFORMER | {"tied": tied, "share": share}
    config = make_config(LOOKUP | {"embedding_dim": 8}, TRANSFORMER, decoder, data=data)
    torch.manual_seed(0)
    return Translator.build(config, vocabulary(12), vocabulary(12)).double().eval()


@pytest.mark.parametrize("tied", [False, True])
def test_a_shared_table_learns_from_both_sides(tied: bool, tmp_path: Path) -> None:
    model, apart = sharing(tied), sharing(tied, share=False)
    table = model.segmenter.embedding.weight
    weights = model.state_dict()
    scaled = {"segmenter.embedding.weight": table * 8**0.5, "decoder.embedding.weight": table}
    apart.load_state_dict(weights | scaled)
    assert apart.parameter_count() - model.parameter_count() == table.numel() == 12 * 8
    losses = [one(collate(PAIRS)).total for one in (model, apart)]
    close(*losses)
    for loss in losses:
        loss.backward()
    ours, theirs = gradients(model), gradients(apart)
    source, target = (theirs.pop(f"{side}.embedding.weight") for side in ("segmenter", "decoder"))
    assert source.any()
    assert target.any()
    close(ours.pop("segmenter.embedding.weight"), source * 8**0.5 + target)
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        close(gradient, theirs[name], what=name)
    model.float().save_pretrained(tmp_path / "model")
    again = Translator.from_pretrained(tmp_path / "model")
    assert {*again.state_dict()} == {*weights}
    assert "decoder.embedding.weight" not in weights
    assert again.decoder.embedding.weight is again.segmenter.embedding.weight
    assert again.score(["abc", "ha"], ["d", "ef"]) == model.score(["abc", "ha"], ["d", "ef"])


def test_places_of_symbols_tell_the_encoder_how_long_segments_are() -> None:
    """The same vectors under other cuts: states differ where places count symbols, and nowhere else."""
    for mix, differs in (("both", False), ("both, by symbols", True)):
        model = model_of("fixed", mix)
        src, lengths = torch.tensor([[5, 6, 7, 8, 9, 10, 3]]), torch.tensor([7])
        with torch.no_grad():
            segments, _ = model.encode(src, lengths)
            given = torch.tensor([[1, -1, 1, -1, -1, -1, 0]], dtype=torch.int8)
            other, _ = model.encode(src, lengths, given)
            assert segments.ends.tolist() != other.ends.tolist()
            assert segments.vectors.shape == other.vectors.shape
            swapped = replace(segments, cuts=other.cuts)
            states = [model.encoder.encode(one).states for one in (segments, swapped)]
        assert ((states[0] - states[1]).abs().max() > 1e-3) == differs


@pytest.mark.parametrize("mix", ["both", "both, by symbols", "sinusoidal, by symbols"])
def test_bfloat16_rounds_and_changes_nothing_else(mix: str) -> None:
    model = model_of("fixed", mix).float()
    texts, targets = ["abcabcah", "a", "hgfedcb"], ["abc", "d", "edc"]
    exact = model.score(texts, targets)
    model.config = model.config.model_copy(
        update={"testing": model.config.testing.model_copy(update={"precision": "bfloat16"})}
    )
    rounded = model.score(texts, targets)
    assert rounded != exact
    assert rounded == pytest.approx(exact, abs=0.5)
    batch = collate([(model.src_vocabulary.encode(text), None) for text in texts])
    with torch.no_grad(), model.precision():
        _, encoded = model.encode(batch.src, batch.src_lengths)
        for b, pool in enumerate(beam_search(model.decoder, encoded, torch.tensor([9, 9, 9]), 3)):
            for hypothesis in filter(lambda h: h.finished, pool):
                one = encoded.rows(slice(b, b + 1))
                (score,) = forced_scores(model.decoder, one, [hypothesis.symbols[:-1]])
                assert score == pytest.approx(hypothesis.log_prob, abs=0.2)
    step = Step(model.train(), model.config.training.model_copy(update={"precision": "bfloat16"}))
    assert step(collate(PAIRS)).isfinite().all()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize(
    ("part", "options", "key"),
    [
        ("encoder", {"heads": 3}, "heads"),
        ("decoder", {"heads": 3}, "heads"),
        ("encoder", {"size": 6}, "heads"),
        ("encoder", {"places": "characters"}, "places"),
        ("encoder", {"positions": "learned"}, "positions"),
        ("decoder", {"tied": "yes"}, "tied"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_at_its_line(
    part: str, options: dict[str, Any], key: str, tmp_path: Path
) -> None:
    model = {"encoder": TRANSFORMER, "decoder": TRANSFORMER, "segmenter": LOOKUP}
    model[part] = TRANSFORMER | options
    config = make_config(LOOKUP, model["encoder"], model["decoder"])
    path = tmp_path / "config.yaml"
    path.write_text(config.dump(), encoding="utf-8")
    with refuses(InputError, f"{path}:", f"model.{part}.{key}"):
        resolve(load_config(path))


@pytest.mark.parametrize(
    ("segmenter", "level", "sizes"),
    [
        (LOOKUP | {"embedding_dim": 8}, "char", (12, 12)),  # characters of two languages
        (LOOKUP, "byte", (12, 12)),
        (ACT | {"embedding_dim": 8}, "byte", (12, 12)),
        (LOOKUP | {"embedding_dim": 8}, "byte", (12, 9)),
    ],
    ids=["levels", "sizes", "segmenter", "vocabularies"],
)
def test_embeddings_of_two_vocabularies_are_not_shared(
    segmenter: dict[str, Any], level: str, sizes: tuple[int, int], tmp_path: Path
) -> None:
    side = {"lang": "xx", "level": level}
    data = {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side}
    config = make_config(segmenter, TRANSFORMER, TRANSFORMER | {"share": True}, data=data)
    path = tmp_path / "config.yaml"
    path.write_text(config.dump(), encoding="utf-8")
    with refuses(InputError, f"{path}:", "model.decoder.share"):
        Translator.build(load_config(path), *map(vocabulary, sizes))


def test_defaults_are_written_out() -> None:
    sizes = {"type": "transformer", "size": 8, "heads": 2, "feed_forward": 16}
    resolved = resolve(make_config(LOOKUP, sizes, sizes)).model
    assert resolved.encoder.options | {"places": 0} == {
        "size": 8,
        "heads": 2,
        "feed_forward": 16,
        "num_layers": 6,
        "dropout": 0.1,
        "positions": "rotary",
        "places": 0,
    }
    assert resolved.decoder.options["tied"] is False
    assert Translator.build(resolve(make_config(LOOKUP, sizes, sizes)), vocabulary(12), vocabulary(9))
