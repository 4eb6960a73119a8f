"""On a GPU, where not every bit comes again, a killed run reads and counts as an undisturbed one."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.program import write_corpus
from training.outcomes import outcome
from training.test_kills import kill

from caesura.inference import Translator

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

# At this rate nothing is learned: after the first, every validation lowers it.
SCHEDULE = ("training.learning_rate=1e-9", "training.patience=1", "training.max_halvings=1000")
SIZE = ("training.updates=120", "training.validation_freq=300")
POISONED = "5,70"  # updates
COUNTED = ("kind", "update", "sentences", "epoch", "batch", "learning_rate", "verdict")


def counted(folder: Path) -> dict[str, Any]:
    """What a run leaves without what comes from its weights."""
    result = outcome(folder)
    del result["progress"]["window"]
    del result["progress"]["schedule"]["best"], result["progress"]["schedule"]["best_chrf"]
    return {
        "log": [{name: record[name] for name in COUNTED if name in record} for record in result["metrics"]],
        "progress": result["progress"],
        "skipped": [path.read_text() for path in sorted((folder / "skipped").iterdir())],
        "names": {path.name for path in folder.rglob("*")},
    }


def test_killed_again_and_again_it_reads_the_same_sentences_and_counts_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CAESURA_KERNELS", "reference")  # nothing to compile
    write_corpus(tmp_path, train=200, dev=5)
    settings = ("training.device=cuda", "training.precision=bfloat16", *SCHEDULE, *SIZE)
    monkeypatch.setenv("POISONED_UPDATES", POISONED)
    assert kill(tmp_path, "updates", 4, 1, "word", *settings) == {"updates": 4}
    runs = tmp_path / "runs"
    whole, killed = (counted(runs / name) for name in ("whole", "killed"))
    assert killed == whole
    verdicts = [record["verdict"] for record in whole["log"] if "verdict" in record]
    assert verdicts == ["best", "halve", "halve", "halve"]
    assert len(whole["skipped"]) == 2

    read, again = (
        [json.loads(line) for line in (runs / f"{name}.trace").read_text().splitlines()]
        for name in ("whole", "killed")
    )
    assert [update for update, *_ in read] == [*range(120)]
    assert {update for update, *_ in again} == {*range(120)}
    assert len(again) > 120, "what was lost is done again"
    for entry in again:
        assert entry == read[entry[0]]
    for epoch in range(6):
        assert sorted(row for _, e, _, rows in read if e == epoch for row in rows) == [*range(200)]
    assert Translator.from_pretrained(runs / "killed", "cuda").translate(["eins zwei"])
