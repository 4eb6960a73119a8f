"""Real corpora through the command line: trains, validates, stops, resumes, translates, evaluates."""

import json
import lzma
import os
import re
from itertools import islice
from pathlib import Path

import pytest
from cli.program import caesura

from caesura.evaluation.pieces import split_pieces
from caesura.training import loop

pytestmark = pytest.mark.slow

DATA = Path(os.environ.get("CAESURA_DATA", Path(__file__).parents[2].parent / "shared" / "data"))

LOOKUP = "{type: lookup, embedding_dim: 64}"
ACT = "{type: act, tau: 0.1, embedding_dim: 32, act_size: 64, output_dim: 64}"
CONFIG = """\
name: {corpus}-{system}
data:
  train: {{src: {data}/train.{src}.xz, trg: {data}/train.en.xz}}
  dev: {{src: {here}/dev.{src}, trg: {here}/dev.en}}
  src: {{lang: {src}, level: {src_level}, max_length: {longest}}}
  trg: {{lang: en, level: {trg_level}, max_length: {longest}}}
model:
  segmenter: {segmenter}
  encoder: {{type: recurrent, hidden_size: 64}}
  decoder: {{type: recurrent, embedding_dim: 64, hidden_size: 128, attention_size: 64}}
training:
  batch_size: 16
  learning_rate: 2e-3
  clip_grad_norm: 1.0
  validation_freq: 800
  updates: {updates}
  device: cpu
  threads: 1
testing: {{max_output_ratio: 1.5, max_output_extra: 10, beam_size: 2}}
"""


def system(src_level: str, trg_level: str, segmenter: str, updates: int, longest: int) -> dict[str, object]:
    return {
        "src_level": src_level,
        "trg_level": trg_level,
        "segmenter": segmenter,
        "updates": updates,
        "longest": longest,
    }


SYSTEMS = {
    "multi30k-de-en": {
        "word": system("word, voc_limit: 4000", "word, voc_limit: 4000", LOOKUP, 200, 20),
        "bpe": system("bpe, voc_limit: 2000", "bpe, voc_limit: 2000", LOOKUP, 200, 30),
        "char": system("char", "char", LOOKUP, 100, 60),
        "act": system("char", "char", ACT, 100, 60),
    },
    "tatoeba-ja-en": {
        "wordpiece": system("wordpiece, voc_limit: 8000", "wordpiece, voc_limit: 2000", LOOKUP, 200, 30),
        "act": system("char, voc_limit: 1500", "char", ACT, 100, 40),
    },
    "tatoeba-zh-en": {
        "wordpiece": system("wordpiece, voc_limit: 9000", "wordpiece, voc_limit: 2000", LOOKUP, 200, 30),
        "char": system("char, voc_limit: 1500", "char", LOOKUP, 100, 40),
    },
}


# Left to the soak: every level and every corpus is in one of the others.
LONG = {("multi30k-de-en", "char"), ("tatoeba-ja-en", "act"), ("tatoeba-zh-en", "wordpiece")}


def first_lines(path: Path, count: int) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n") for line in islice(file, count)]


@pytest.mark.parametrize(
    ("corpus", "name"),
    [
        pytest.param(corpus, name, marks=[pytest.mark.soak] if (corpus, name) in LONG else [])
        for corpus, systems in SYSTEMS.items()
        for name in systems
    ],
)
def test_a_short_run_on_real_text_trains_stops_resumes_translates_and_evaluates(
    corpus: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = DATA / corpus
    if not data.is_dir():
        pytest.skip(f"no {data}; CAESURA_DATA names the folder with the real corpora")
    src = corpus.split("-")[1]
    for language in (src, "en"):
        lines = first_lines(data / f"dev.{language}.xz", 40)
        (tmp_path / f"dev.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    values = {"corpus": corpus, "system": name, "data": data, "here": tmp_path, "src": src}
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(**values, **SYSTEMS[corpus][name]), encoding="utf-8")
    monkeypatch.setattr(loop, "LOG_EVERY", 10)
    folder = tmp_path / "model"

    stopped = caesura("train", config, "--out", folder, "--time-limit", "1s")
    assert (stopped.status, stopped.err) == (0, "")
    assert "stopped by the time limit" in stopped.out
    finished = caesura("train", config, "--out", folder)
    assert (finished.status, finished.err) == (0, "")
    assert "going on from update" in finished.out
    assert f"training finished: {SYSTEMS[corpus][name]['updates']} updates" in finished.out

    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [record["cross_entropy"] for record in records if record["kind"] == "train"]
    assert losses[-1] < 0.8 * losses[0]
    validations = [record for record in records if record["kind"] == "validation"]
    assert len(validations) == SYSTEMS[corpus][name]["updates"] // 50
    assert validations[-1]["chrf"] > 1

    source = tmp_path / f"dev.{src}"
    texts = source.read_text(encoding="utf-8").split("\n")[:-1]
    translated = caesura("translate", folder, source)
    assert translated.status == 0
    assert re.fullmatch(r"(caesura: symbols not in the model's vocabulary: .*\n)?", translated.err)
    assert len(translated.lines) == len(texts)
    assert any(translated.lines)
    cut = caesura("segment", folder, source)
    assert ["".join(split_pieces(line)) for line in cut.lines] == texts
    given = ("--src", source, "--trg", tmp_path / "dev.en", "--json")
    scores = json.loads(caesura("evaluate", folder, *given).out)
    assert scores["scores"]["sentences"] == len(texts)
    assert scores["scores"]["chrf"] > 1
    assert ("live" in scores["figures"]) == (name == "act")
    mean = scores["segments"]["mean"]
    assert mean == 1 if name == "char" else mean > 1
