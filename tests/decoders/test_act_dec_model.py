"""A translator that writes in segments: search, forced scoring, its cuts, shared parameters, config."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import (
    ACT,
    ACT_DECODER,
    LOOKUP,
    encode,
    make_config,
    score_targets,
    sentences,
    tiny_model,
    vocabulary,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from wording import refuses

from caesura.components import resolve
from caesura.config import load_config
from caesura.data.batching import collate
from caesura.data.vocabulary import BOS, EOS, PAD, UNK
from caesura.data.vocabulary_training import train_vocabulary
from caesura.decoders.act import ActDecoder
from caesura.encoders.base import Encoded
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.search.beam import beam_search

MODELS = [
    pytest.param(tiny_model(LOOKUP, seed=3, decoder=ACT_DECODER), id="char source"),
    pytest.param(
        tiny_model(ACT, seed=4, decoder=ACT_DECODER | {"feed_context": True}), id="ACT-ENC, context fed"
    ),
]
SHARED = ACT_DECODER | {"share": True}
PAIRS = list(zip(sentences(4, seed=1), sentences(4, seed=2, vocab_size=9), strict=True))


@pytest.mark.parametrize("model", MODELS)
def test_the_models_of_these_tests_cut_in_more_than_one_way(model: Translator) -> None:
    hypotheses = model.process(["abcdefgh", "aaa", "hgfedc"], model.searcher(4))
    spans = {n for output in hypotheses for cut in output.targets for n in cut.covered}
    assert len(spans) > 2
    assert all(len(output.targets) == len(output.hypotheses) == 4 for output in hypotheses)


@pytest.mark.parametrize("seed", range(4))
def test_a_wide_enough_beam_finds_the_best_of_all_sequences(seed: int) -> None:
    limit, going = 4, (UNK, 4, 5)
    torch.manual_seed(seed)
    decoder = ActDecoder(
        6, memory_dim=4, summary_dim=5, embedding_dim=3, hidden_size=5, act_size=4, attention_size=3
    )
    with torch.no_grad():
        for parameter in decoder.double().parameters():
            parameter.mul_(3)
        decoder.halting.bias.fill_(-0.5)
    encoded = Encoded(torch.randn(1, 4, 4).double(), torch.tensor([4]), torch.randn(1, 5).double())
    finished = [(*stem, EOS) for size in range(limit) for stem in product(going, repeat=size)]
    opened = [*product(going, repeat=limit)]
    everything = finished + opened
    lengths = torch.tensor([len(symbols) for symbols in everything])
    targets = torch.tensor([[*symbols, *[PAD] * (limit - len(symbols))] for symbols in everything])
    copies = encoded.rows(torch.zeros(len(everything), dtype=torch.long))
    scores = dict(zip(everything, score_targets(decoder, copies, targets, lengths).tolist(), strict=True))
    (pool,) = beam_search(decoder, encoded, torch.tensor([limit]), beam=len(everything))
    ranked = [sorted(group, key=lambda s: scores[s] / len(s), reverse=True) for group in (finished, opened)]
    assert [h.symbols for h in pool] == ranked[0] + ranked[1]
    assert pool[0].log_prob == pytest.approx(scores[ranked[0][0]])


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_wider_beam_finds_no_worse_hypotheses_on_average_over_200_sentences(alpha: float) -> None:
    model = tiny_model(ACT, seed=8, decoder=ACT_DECODER)
    with torch.no_grad():
        model.decoder.symbols.bias[EOS] += 3
    encoded, limits = encode(model, sentences(200, seed=7)), torch.full((200,), 30)
    best = [
        [pool[0] for pool in beam_search(model.decoder, encoded, limits, beam, alpha)]
        for beam in (1, 2, 4, 8)
    ]
    # A hypothesis that the limit cut off would rank below finished ones whatever its score.
    assert all(h.finished for hypotheses in best for h in hypotheses)
    assert len({len(h.symbols) for hypotheses in best for h in hypotheses}) > 10
    means = [sum(h.score for h in hypotheses) / 200 for hypotheses in best]
    assert means == sorted(set(means)), "each better than the one before"


@pytest.mark.parametrize("model", MODELS)
def test_the_cuts_of_a_translation_are_those_it_was_written_in(model: Translator) -> None:
    texts = ["abcdefgh", "aaa", "", "hgfedc"]
    for text, output in zip(texts, model.process(texts, model.searcher(3)), strict=True):
        assert ["".join(cut.pieces) for cut in output.targets] == output.texts
        for h, cut in zip(output.hypotheses, output.targets, strict=True):
            state, ends = model.decoder.start(encode(model, [model.src_vocabulary.encode(text)])), []
            for symbol in (BOS, *h.symbols):
                step, state = model.decoder.step(state, torch.tensor([[symbol]]))
                ends.append(bool(step.ends))
            count = len(h.symbols) - h.finished
            ends = ends[1 : count + 1]
            if not h.finished:
                ends[-1] = True  # where the limit cut it off
            assert cut.ends == ends
        assert bool(output.targets) == bool(text)


def test_the_cuts_of_given_translations_join_to_them() -> None:
    model = tiny_model(ACT, seed=4, decoder=ACT_DECODER)
    sources, targets = ["abc", "", "hh", "abc"], ["abcdeab", "abc", "a?b ", ""]
    cuts = model.segment_targets(sources, targets)
    assert ["".join(cut.pieces) for cut in cuts] == targets
    assert cuts[1].pieces == ["abc"], "nothing to attend to"
    assert len(cuts[0].pieces) > 1
    assert [len(cut.ends) for cut in cuts] == [7, 0, 4, 0]
    alone = model.segment_targets(["abc"], ["abcdeab"])[0]
    assert (cuts[0].pieces, cuts[0].ends) == (alone.pieces, alone.ends)
    assert cuts[0].scores == pytest.approx(alone.scores, rel=1e-12)
    assert cuts[0].weights == pytest.approx(alone.weights, rel=1e-12)
    with refuses(ValueError):
        tiny_model(ACT).segment_targets(["a"], ["a"])
    with refuses(InputError, "2 ", " 1 "):
        model.segment_targets(["a", "b"], ["c"])


TEXT = ["ein haus am see", "zwei häuser", "drei schiffe und ein see", "東京都に行く"]


@pytest.mark.parametrize(("kind", "size"), [("char", None), ("word", None), ("bpe", 60), ("wordpiece", 70)])
@settings(max_examples=20)
@given(data=st.data())
def test_the_pieces_of_whatever_is_written_joined_give_its_text(
    kind: str, size: int | None, data: Any
) -> None:
    spelled = train_vocabulary(kind, TEXT, size)
    ids = data.draw(st.lists(st.integers(PAD, len(spelled) - 1), max_size=12))
    text, spans = spelled.decode_spans(ids)
    assert text == spelled.decode(ids)
    kept = ids[: ids.index(EOS)] if EOS in ids else ids
    assert [text[a:b] for a, b in spans] == [spelled.decode([i]) for i in kept]
    ends = [0, *(end for _, end in spans)]
    gaps = [text[end:start] for end, (start, _) in zip(ends, spans, strict=False)]
    assert set(gaps) <= ({""} if kind == "char" else {"", " "})
    assert ends[-1] == len(text)


def test_output_for_json_has_the_pieces_of_every_hypothesis() -> None:
    output = tiny_model(ACT, seed=4, decoder=ACT_DECODER).process(["abc"], None)[0]
    assert output.record(2) == {"pieces": output.segmentation.pieces, "hypotheses": []}
    model = tiny_model(ACT, seed=4, decoder=ACT_DECODER)
    record = model.process(["abc"], model.searcher(3))[0].record(2)
    assert len(record["hypotheses"]) == 2
    assert all("".join(h["pieces"]) == h["text"] for h in record["hypotheses"])


def test_the_loss_has_the_decoders_penalty_by_its_own_tau() -> None:
    model, batch = tiny_model(ACT, decoder=ACT_DECODER), collate(PAIRS)
    loss = model(batch)
    segments, encoded = model.encode(batch.src, batch.src_lengths)
    penalty = model.decoder(encoded, batch.trg_in, batch.trg_lengths).penalty
    torch.testing.assert_close(loss.counts["decoder_penalty"], penalty.sum())
    torch.testing.assert_close(loss.auxiliary, 0.7 * segments.penalty.mean() + 0.4 * penalty.mean())
    torch.testing.assert_close(loss.total, loss.cross_entropy / loss.symbols + loss.auxiliary)
    loss.total.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def gradient(loss: Tensor, parameter: Tensor) -> Tensor:
    return torch.autograd.grad(loss, parameter, retain_graph=True)[0]


def test_shared_parameters_are_one_set_that_learns_from_both_sides(tmp_path: Path) -> None:
    model, apart = tiny_model(ACT, decoder=SHARED), tiny_model(ACT, decoder=ACT_DECODER)
    expected = sum(
        p.numel() for m in ("cell", "halting", "output") for p in getattr(apart.segmenter, m).parameters()
    )
    assert model.parameter_count() == apart.parameter_count() - expected
    assert not [
        name
        for name in model.state_dict()
        if name.startswith(("decoder.inner", "decoder.halting", "decoder.output"))
    ]
    loss, weight = model(collate(PAIRS)), model.segmenter.cell.weight_hh
    assert gradient(loss.counts["decoder_penalty"], weight).any()
    batch = collate(PAIRS)
    segments, _ = model.encode(batch.src, batch.src_lengths)
    assert gradient(segments.penalty.mean(), weight).any()

    # The same weights in two sets: the gradient of the one is the sum of both.
    names = {
        "decoder.inner": "segmenter.cell",
        "decoder.halting": "segmenter.halting",
        "decoder.output": "segmenter.output",
    }
    weights = model.state_dict()
    for name in apart.state_dict():
        if name not in weights:
            part, _, rest = name.rpartition(".")
            weights[name] = weights[f"{names[part]}.{rest}"]
    apart.load_state_dict(weights)
    twice = apart(collate(PAIRS))
    torch.testing.assert_close(twice.total, loss.total, rtol=0, atol=1e-12)
    both = gradient(twice.total, apart.segmenter.cell.weight_hh) + gradient(
        twice.total, apart.decoder.inner.weight_hh
    )
    torch.testing.assert_close(gradient(loss.total, weight), both, rtol=0, atol=1e-12)

    model.float().save_pretrained(tmp_path)
    read = Translator.from_pretrained(tmp_path)
    assert read.decoder.inner is read.segmenter.cell
    assert read.translate(["abc", "hgf"]) == model.translate(["abc", "hgf"])


CONFIG = """\
name: trial
data:
  train: train.tsv
  dev: dev.tsv
  src: {lang: de, level: char}
  trg: {lang: en, level: char}
model:
  segmenter: {type: act, embedding_dim: 4, act_size: 3, output_dim: 5}
  encoder: {type: recurrent, hidden_size: 3}
  decoder:
    type: act
    embedding_dim: 4
    hidden_size: 6
    act_size: 3
    attention_size: 5
    output_dim: 5
    share: true
    tau: -0.5
"""


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("    act_size: 3\n", "    act_size: 0\n", "14: model.decoder.act_size: must be at least 1, not 0"),
        (
            "    act_size: 3\n",
            "    act_size: 3.0\n",
            "14: model.decoder.act_size: 3.0 is not a whole number; write 3",
        ),
        ("    act_size: 3\n", "", "10: model.decoder.act_size: missing"),
        (
            "    act_size: 3\n",
            "    act_size: 4\n",
            "17: model.decoder.share: needs the same sizes in segmenter and decoder: act_size is 3 and 4",
        ),
        (
            "    output_dim: 5\n",
            "",
            "16: model.decoder.share: needs the same sizes in segmenter and decoder: output_dim is 5 and 4",
        ),
        (
            "type: act, embedding_dim: 4, act_size: 3, output_dim: 5",
            "type: lookup, embedding_dim: 4",
            "17: model.decoder.share: needs a segmenter of type act, whose parameters it takes",
        ),
        (
            "output_dim: 5}",
            "output_dim: 5, learn_halting: false}",
            "17: model.decoder.share: needs learn_halting: true in the segmenter, whose unit it takes",
        ),
        (
            "    tau: -0.5\n",
            "    feed_context: true\n",
            "17: model.decoder.share: needs feed_context: false, as ACT-ENC's cell reads no context",
        ),
        (
            "    tau: -0.5\n",
            "    epsilon: 1.0\n",
            "18: model.decoder.epsilon: must be at least 0 and less than 1, not 1.0",
        ),
    ],
)
def test_bad_settings_are_named_with_their_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert CONFIG.count(old) == 1
    Path("a.yaml").write_text(CONFIG.replace(old, new))
    with pytest.raises(InputError) as refused:
        resolve(load_config("a.yaml"))
    assert str(refused.value).startswith(f"a.yaml:{complaint}")


def test_good_settings_are_resolved_with_their_defaults(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CONFIG)
    decoder = resolve(load_config(tmp_path / "a.yaml")).model.decoder
    assert (decoder.tau, decoder.options["epsilon"], decoder.options["feed_context"]) == (-0.5, 0.01, False)
    config = make_config(LOOKUP, {"hidden_size": 3}, ACT_DECODER)
    assert isinstance(Translator.build(config, vocabulary(9), vocabulary(8)).decoder, ActDecoder)
