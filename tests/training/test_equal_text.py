"""Batches by characters: models of all levels train on the same text, batch by batch."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbered import build
from numpy.typing import NDArray
from torch import Tensor
from training.outcomes import configured, outcome, records, run

from caesura.data.batching import BatchPlan
from caesura.data.corpus import ParallelText
from caesura.data.vocabulary_training import train_vocabulary
from caesura.training.guard import Guard

LEVELS = {"char": None, "word": None, "bpe": 40}
LINE = st.text("ab  ü", min_size=1, max_size=30).filter(str.strip)


@given(pairs=st.lists(st.tuples(LINE, LINE), min_size=1, max_size=40), budget=st.integers(1, 200))
@settings(max_examples=40)
def test_every_level_gets_the_same_batches_within_the_budget(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]], budget: int
) -> None:
    folder = tmp_path_factory.mktemp("text")
    columns = [*zip(*pairs, strict=True)]
    for name, lines in zip(("a", "b"), columns, strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text, planned = ParallelText(folder / "a", folder / "b"), {}
    for level, size in LEVELS.items():
        vocabularies = (train_vocabulary(level, lines, size) for lines in columns)
        corpus = build(text, *vocabularies, folder, level)
        plan = BatchPlan(corpus.characters, budget, "characters", seed=5, pool=2)
        planned[level] = [batch.tolist() for batch in plan.epoch(1)]
    assert planned["char"] == planned["word"] == planned["bpe"]
    assert sorted(i for batch in planned["char"] for i in batch) == [*range(len(pairs))]
    for batch in planned["char"]:
        widest = max(len(side) + 1 for i in batch for side in pairs[i])
        assert len(batch) == 1 or widest * len(batch) <= budget


@pytest.mark.usefixtures("frequent_log")
def test_training_by_characters_sees_the_same_text_at_every_level_and_goes_on_exactly(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[int]] = []
    note = Guard.note

    def noted(self: Guard, rows: NDArray[np.int64], wrong: Tensor) -> None:
        seen.append(rows.tolist())
        note(self, rows, wrong)

    monkeypatch.setattr(Guard, "note", noted)
    by_level = {}
    for system in ("char", "word", "bpe"):
        by_text = ("training.batch_type=characters", "training.batch_size=300")
        config = configured(corpus, system, "model.encoder.dropout=0.3", *by_text)
        seen.clear()
        run(config, tmp_path / system)
        by_level[system] = [*seen]
        if system == "bpe":
            run(config, tmp_path / "parts", 1, 4, 7)
            assert outcome(tmp_path / "parts") == outcome(tmp_path / system)
            assert seen == 2 * by_level[system]
    assert by_level["char"] == by_level["word"] == by_level["bpe"]
    starts = [records(tmp_path / system, "start")[0] for system in by_level]
    assert starts[0]["symbols"] == starts[0]["characters"] == starts[1]["characters"]
    assert starts[1]["symbols"] < starts[1]["characters"]
