"""Cuts by the entropy of a GRU: the requested rate, the same cuts in any company, a file of data alone."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data.test_entropy import LINES
from numbered import build
from wording import refuses, wording

from caesura.config import EntropyCuts
from caesura.data import entropy_gru
from caesura.data.character_gru import CLASSES, SIZE, shapes
from caesura.data.corpus import ParallelText
from caesura.data.entropy_gru import GruCuts, load_gru
from caesura.data.sentences import Numbered, with_given
from caesura.data.tensors import load_tensors, save_tensors
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError


def settings(**changes: Any) -> EntropyCuts:
    options = {"type": "entropy", "model": "gru", "target": 3.0, "size": 5, "updates": 2}
    return EntropyCuts.model_validate(options | changes)


@pytest.fixture(scope="module")
def learnt() -> GruCuts:
    return GruCuts.learn(LINES, settings(), text="ab12")


@pytest.mark.parametrize("by", ["global", "rise"])
def test_segments_of_the_text_have_the_requested_length(by: str) -> None:
    for target in (1.0, 2.0, 3.0, 6.0):
        cuts = GruCuts.learn([*LINES, "", " "], settings(by=by, target=target))
        rows = cuts.several_offsets(LINES)
        characters, segments = sum(map(len, LINES)), sum(1 + len(offsets) for offsets in rows)
        assert segments == pytest.approx(characters / target, abs=0.51)  # the nearest whole number
        for text, offsets in zip(LINES, rows, strict=True):
            scores = cuts.scores(text)
            assert offsets == [at for at in range(1, len(text)) if scores[at] > cuts.threshold]
            assert offsets == cuts.offsets(text)


def test_of_a_long_text_a_sample_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entropy_gru, "SAMPLE", 20)
    monkeypatch.setattr(entropy_gru, "MEASURED", 10)
    lines = [LINES[i % 5] for i in range(200)]
    one, two = (GruCuts.learn(iter(lines), settings()) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    assert sum(map(len, lines)) / sum(1 + len(offsets) for offsets in one.several_offsets(lines)) < 4.5


def test_no_text_or_a_target_beyond_it_is_refused() -> None:
    with pytest.raises(ValueError, match="text"):
        GruCuts.learn(["", " "], settings())
    with pytest.raises(ValueError, match=r"^target 99 "):
        GruCuts.learn(LINES, settings(target=99.0))


def test_all_ways_to_a_text_find_the_same_cuts(learnt: GruCuts, tmp_path: Path) -> None:
    """In a corpus, in a dev set, in sentences given to a model, and alone."""
    texts = [*LINES, "gras ☃", "x", *LINES]
    chars = train_vocabulary("char", texts)
    (tmp_path / "a").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    corpus = build(ParallelText(tmp_path / "a", tmp_path / "a"), chars, chars, tmp_path, "c", cuts=learnt)
    dev, filled = Numbered(texts, chars).cut_by(learnt, "a"), with_given(Numbered(texts, chars), None, learnt)
    assert dev.cuts is not None
    assert filled.cuts is not None
    for i, text in enumerate(texts):
        expected = [int(at in learnt.offsets(text)) for at in range(1, len(text) + 1)]
        assert expected == corpus.cuts(i).tolist() == dev.cuts[i].tolist() == filled.cuts[i].tolist()  # type: ignore[union-attr]
    given = [{1: 1}, [2], *[None] * 10]
    partly = with_given(Numbered(texts, chars), given, learnt).cuts  # type: ignore[arg-type]
    assert partly is not None
    assert partly[0].tolist() == [1, *dev.cuts[0].tolist()[1:]]
    assert partly[1].tolist()[:4] == [-1, 1, -1, -1]
    assert partly[2].tolist() == dev.cuts[2].tolist()


# The file


def test_what_is_saved_is_loaded(learnt: GruCuts, tmp_path: Path) -> None:
    for by in ("global", "rise"):
        cuts = GruCuts(learnt.model, learnt.threshold, by == "rise", "ab12")
        cuts.save(tmp_path / "a")
        loaded = load_gru(tmp_path / "a", settings(by=by))
        assert loaded.fingerprint == cuts.fingerprint
        assert (loaded.threshold, loaded.rise, loaded.text) == (cuts.threshold, by == "rise", "ab12")
        for text in [*LINES, "spielgruppen ☃"]:
            assert loaded.scores(text).tobytes() == cuts.scores(text).tobytes()
    assert learnt.fingerprint != cuts.fingerprint
    assert GruCuts.learn(LINES, settings(target=4.0)).fingerprint != learnt.fingerprint
    with pytest.raises(InputError, match=rf"^{tmp_path / 'a'}: .*size"):
        load_gru(tmp_path / "a", settings(size=6))


def test_the_largest_file_has_no_more_than_16_mb() -> None:
    assert 4 * sum(np.prod(shape) for shape in shapes(CLASSES + 2, SIZE).values()) + 4 * CLASSES < 15_900_000


def changed(learnt: GruCuts, path: Path, tensors: dict[str, Any], facts: dict[str, Any]) -> Path:
    """The file with other content, and a checksum that is right."""
    learnt.save(path)
    old, metadata = load_tensors(path)
    merged = {name: value for name, value in (old | tensors).items() if value is not None}
    save_tensors(
        path, merged, {name: value for name, value in (metadata | facts).items() if value is not None}
    )
    return path


@pytest.mark.parametrize(
    ("tensors", "facts"),
    [
        ({}, {"format": 2}),
        ({}, {"format": None}),
        ({}, {"threshold": None}),
        ({}, {"threshold": "3"}),
        ({}, {"threshold": float("nan")}),
        ({}, {"threshold": 10**400}),
        ({}, {"text": None}),
        ({}, {"text": "\x1b[2J"}),
        ({"alphabet": None}, {}),
        ({"alphabet": torch.zeros(0, dtype=torch.int32)}, {}),
        ({"alphabet": torch.tensor([5, 5, 6], dtype=torch.int32)}, {}),
        ({"alphabet": torch.arange(CLASSES + 1, dtype=torch.int32)}, {}),
        ({"more": torch.zeros(3)}, {}),
        ({"hidden": None}, {}),
        ({"hidden": torch.zeros(15, 6)}, {}),
        ({"hidden": torch.zeros(15, 5, dtype=torch.float64)}, {}),
        ({"hidden": torch.full((15, 5), float("nan"))}, {}),
        ({"hidden": torch.full((15, 5), 1e30)}, {}),
        ({"more": torch.zeros(4_000_000)}, {}),
    ],
)
def test_a_file_that_is_not_one_of_a_gru_is_refused(
    learnt: GruCuts, tmp_path: Path, tensors: dict[str, Any], facts: dict[str, Any]
) -> None:
    path = changed(learnt, tmp_path / "a", tensors, facts)
    with refuses(InputError, f"{path}: "):
        load_gru(path, settings())


@pytest.mark.parametrize("shift", [-1, 0x110000])
def test_code_points_that_are_none_are_refused(learnt: GruCuts, tmp_path: Path, shift: int) -> None:
    alphabet = torch.from_numpy(learnt.model.alphabet.astype(np.int32))
    alphabet[0 if shift < 0 else -1] = shift
    path = changed(learnt, tmp_path / "a", {"alphabet": alphabet}, {})
    with refuses(InputError, f"{path}: "):
        load_gru(path, settings())


def test_other_bytes_are_refused(learnt: GruCuts, tmp_path: Path) -> None:
    path = tmp_path / "a"
    learnt.save(path)
    whole = path.read_bytes()
    for content in (b"", b"{}", whole[: len(whole) // 2], whole[:-9] + b"x" + whole[-8:], b"\xff" * 99):
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"^{path}: ") as caught:
            load_gru(path, settings())
        sizes = re.findall(r"\d,\d{3}", str(caught.value))  # they depend on the digits of the threshold
        wording(caught.value, *sizes)
