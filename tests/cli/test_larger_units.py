"""Input units larger than characters: BPE symbols in, segments of several symbols out."""

import json
from pathlib import Path

import pytest
from cli.program import caesura, refusal, write_config, write_corpus
from wording import wording

from caesura.evaluation.boundaries import segment_length
from caesura.inference import Translator

READER = "reader: {type: bigru, embedding_dim: 8, size: 6}, pooling: weighted"
SEGMENTERS = {
    "act": "{type: act, tau: 0.1, embedding_dim: 8, act_size: 12, output_dim: 12, halting_bias: -1.0}",
    "parts": f"{{{READER}, cutter: {{type: act, carry: true, halting_bias: -0.5}}}}",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, 30, 6, digits=5)
    return folder


def settings(segmenter: str) -> list[str]:
    values = f"model.segmenter={segmenter}", "data.trg={lang: en, level: char}", "training.updates=3"
    return [part for value in values for part in ("--set", value)]


@pytest.mark.parametrize("name", SEGMENTERS)
def test_bpe_symbols_are_joined_to_segments(name: str, corpus: Path, tmp_path: Path) -> None:
    out, config = tmp_path / "model", write_config(corpus / "bpe.yaml", "bpe")
    done = caesura("train", config, "--out", out, *settings(SEGMENTERS[name]))
    assert done.status == 0, done.err
    model = Translator.from_pretrained(out)
    texts = (corpus / "dev.de").read_text(encoding="utf-8").splitlines()
    cuts = [output.segmentation for output in model.process(texts, None)]
    symbols = [model.src_vocabulary.encode_spans(text)[1] for text in texts]
    assert any(1 < len(cut.covered) < len(spans) for cut, spans in zip(cuts, symbols, strict=True))
    for text, cut, spans in zip(texts, cuts, symbols, strict=True):
        assert {*cut.bounds} <= {end for _, end in spans[:-1]}  # only between symbols
        assert sum(cut.covered) == len(text.replace(" ", ""))  # lengths are of characters
    done = caesura("translate", out, corpus / "dev.de", "--segments", "--set", "testing.beam_size=1")
    assert [line.partition("\t")[0].replace("|", "").replace("␣", " ") for line in done.lines] == texts
    given = "--src", corpus / "dev.de", "--trg", corpus / "dev.en", "--set", "testing.beam_size=1"
    measured = json.loads(caesura("evaluate", out, *given, "--json").out)
    assert measured["segments"]["mean"] == pytest.approx(segment_length(c.covered for c in cuts).mean)
    done = caesura("analyze", out, *given, "--only", "cuts", "--json", "--moved", "2")
    assert done.status == 0, done.err
    assert json.loads(done.out)


def test_a_rate_is_of_characters_and_says_so(corpus: Path, tmp_path: Path) -> None:
    config = write_config(corpus / "rated.yaml", "bpe")
    rated = SEGMENTERS["parts"].removesuffix("}") + ", rate: {target: 4.0}}"
    done = caesura("train", config, "--out", tmp_path / "model", *settings(rated))
    message = wording(refusal(done))
    assert "model.segmenter.rate: " in message
    assert "data.src.level" in message
