"""The benchmark of depth measures every layer of a deep encoder, and its numbers mean what it says."""

import json
import sys
from pathlib import Path

import pytest

from caesura.data.numerals import HeldOut, write_corpus

ROOT = Path(__file__).parents[2]
DECODER = "model.decoder={type: recurrent, embedding_dim: 4, hidden_size: 8, attention_size: 4}"


@pytest.mark.slow
def test_spread_share_and_cross_entropy_of_every_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import depth  # type: ignore[import-not-found]

    write_corpus(tmp_path / "text", size=300, held_out=HeldOut(dev=10, test=1, long=1, typo=1))
    parts = [f"data.{part}={tmp_path / 'text' / part}.tsv" for part in ("train", "dev", "test")]
    sizes = ["model.segmenter.embedding_dim=4", "model.encoder.hidden_size=4", "training.batch_size=20"]
    words = [word for setting in (DECODER, *parts, *sizes) for word in ("--set", setting)]
    config = ROOT / "recipes" / "numerals" / "act-dec.yaml"
    out = tmp_path / "out"
    call = ["--layers", "1,3", "--ways", "printed,norm", "--updates", "10", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["depth.py", str(config), *call, *words])
    depth.main()
    runs = json.loads((out / "depth.json").read_text(encoding="utf-8"))
    assert [*runs] == ["1 printed", "1 norm", "3 printed", "3 norm"]
    for name, looks in runs.items():
        assert [look["update"] for look in looks] == [*range(11)]
        for look in looks:
            assert {len(look[key]) for key in depth.KEYS} == {int(name[0])}
            assert sum(share**2 for share in look["share"]) < 1
            assert all(-1 <= cosine <= 1 for cosine in look["agreement"])
        assert looks[-1]["dev"] < looks[0]["dev"]
    spread = runs["3 printed"][0]["spread"]
    assert spread[0] > spread[1] > spread[2]  # states become alike from layer to layer
    assert min(runs["3 norm"][0]["spread"][1:]) > spread[1]
