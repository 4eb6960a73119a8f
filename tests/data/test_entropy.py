"""Cuts by entropy: the threshold meets the rate that is asked for, and the file holds what was learnt."""

import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.config import EntropyCuts
from caesura.data import entropy
from caesura.data.cuts import places_of, text_cuts
from caesura.data.entropy import TOLERANCE, NgramCuts, load_ngrams
from caesura.data.numerals import make_corpus
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError

LINES = [
    "in gruppen spielen",
    "die gruppen spielten im gras",
    "spielende jungtiere",
    "jung im gras",
    "我们在草地上玩",
]
lines_of_any = st.lists(st.text(st.sampled_from("abc dä東"), max_size=12), max_size=8)


def settings(**changes: Any) -> EntropyCuts:
    return EntropyCuts.model_validate({"type": "entropy", "target": 3.0, "order": 4} | changes)


def mean_length(cuts: NgramCuts, lines: list[str]) -> float:
    """Characters over segments, the last one of each line counted."""
    lines = [line for line in lines if line.strip()]
    return sum(map(len, lines)) / sum(1 + len(cuts.offsets(line)) for line in lines)


@given(
    lines=lines_of_any.filter(lambda lines: "".join(lines).strip()),
    order=st.integers(2, 7),
    by=st.sampled_from(["global", "rise"]),
    target=st.floats(1, 12),
)
def test_no_other_threshold_is_nearer_to_the_rate(lines, order, by, target):
    """Against all thresholds that there are, with the scores of the lines themselves."""
    try:
        cuts = NgramCuts.learn(lines, settings(order=order, by=by, target=target))
    except ValueError as problem:
        cuts = None
        assert str(problem).startswith("target ")  # noqa: PT017
        other = NgramCuts.learn(lines, settings(order=order, by=by, target=1.0))
    kept = [line for line in lines if line.strip()]
    chosen = cuts or other
    scores = [chosen.scores(line)[1:] for line in kept]
    every = np.unique(np.concatenate(scores).round(9)) + 1e-8
    segments = [len(kept) + sum((row > t).sum() for row in scores) for t in [-1e9, *every]]
    lengths = sum(map(len, kept)) / np.array(segments)
    nearest = min(abs(lengths / target - 1))
    if cuts is None:
        assert nearest > TOLERANCE - 1e-9 or target * len(kept) > sum(map(len, kept))
    else:
        assert abs(mean_length(cuts, lines) / target - 1) == pytest.approx(nearest, abs=1e-9)
        assert nearest <= TOLERANCE + 1e-9


def test_scores_say_where_a_text_is_cut():
    for by in ("global", "rise"):
        cuts = NgramCuts.learn(LINES, settings(by=by))
        for text in [*LINES, "", "x", "gras ☃ spielen", "玩" * 9]:
            scores = cuts.scores(text)
            assert len(scores) == len(text)
            expected = [at for at in range(1, len(text)) if scores[at] > cuts.threshold]
            assert cuts.offsets(text) == expected
            entropies = cuts.model.entropies(text)
            if by == "rise":
                assert scores[1:].tolist() == (entropies[1:] - entropies[:-1]).tolist()
            else:
                assert scores.tolist() == entropies.tolist()
            _, spans = train_vocabulary("char", [*LINES, text]).encode_spans(text)
            marks = cuts(text, places_of(spans)).tolist()
            assert marks == [int(at in expected) for at in range(1, len(text) + 1)]


def test_one_character_per_segment_cuts_everywhere_and_lines_nowhere():
    assert NgramCuts.learn(LINES, settings(target=1.0)).offsets("gras") == [1, 2, 3]
    longest = sum(map(len, LINES)) / len(LINES)
    cuts = NgramCuts.learn(LINES, settings(target=longest))
    assert [cuts.offsets(line) for line in LINES] == [[]] * len(LINES)
    assert NgramCuts.learn(["a", "b", "a"], settings(target=1.0)).offsets("a") == []


@pytest.mark.parametrize(
    ("lines", "target"), [(LINES, 17.5), (["a", "b"], 1.5), (["aaaa"] * 9, 2.9), (["ab" * 20], 7.0)]
)
def test_a_rate_that_cannot_be_met_is_refused(lines, target):
    with refuses(ValueError, f"target {target:g} "):
        NgramCuts.learn(lines, settings(target=target, order=2))


@pytest.mark.parametrize("target", [1.0, 2.0, 3.0, 5.0])
def test_another_rate_needs_no_text(target):
    cuts = NgramCuts.learn(LINES, settings(target=4.0)).at(target)
    assert cuts is not None
    assert cuts.threshold == NgramCuts.learn(LINES, settings(target=target)).threshold
    assert cuts.at(4.0).threshold == NgramCuts.learn(LINES, settings(target=4.0)).threshold


def test_a_threshold_is_not_lost_when_another_thread_clears_them():
    class Cleared(dict):
        """What a thread stores, another one clears at once."""

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            self.clear()

    cuts = NgramCuts.learn(LINES, settings(target=4.0))
    expected = cuts.at(3.0).threshold
    cuts._thresholds = Cleared()
    assert cuts.at(3.0).threshold == expected


def test_another_rate_is_the_nearest_that_there_is():
    cuts = NgramCuts.learn(["aaaa"] * 9, settings(target=1.0, order=2)).at(2.9)
    assert cuts is not None
    assert mean_length(cuts, ["aaaa"]) in (2.0, 4.0)
    assert NgramCuts.learn(LINES, settings(by="rise")).at(3.0) is None
    with refuses(ValueError, "target 17.5 "):
        cuts.at(17.5)


def test_german_numbers_are_cut_at_their_morphemes():
    examples = make_corpus(size=2000)["train"]
    cuts = NgramCuts.learn([e.source for e in examples], settings(order=5, target=5.0))
    predicted = [set(cuts.offsets(e.source)) for e in examples]
    right = sum(len(offsets & set(e.bounds)) for offsets, e in zip(predicted, examples, strict=True))
    assert 2 * right / (sum(map(len, predicted)) + sum(len(e.bounds) for e in examples)) > 0.8


# The file


@pytest.fixture(scope="module")
def learnt() -> NgramCuts:
    return NgramCuts.learn(LINES, settings())


@pytest.mark.parametrize("by", ["global", "rise"])
def test_what_is_saved_is_loaded_and_the_same_each_time(by: str, tmp_path: Path) -> None:
    cuts = NgramCuts.learn(LINES, settings(by=by))
    for name in ("a.npz", "b.npz"):
        NgramCuts.learn(iter(LINES), settings(by=by)).save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    loaded = load_ngrams(tmp_path / "a.npz", settings(by=by))
    assert loaded.fingerprint == cuts.fingerprint
    assert (loaded.threshold, loaded.rise) == (cuts.threshold, by == "rise")
    for text in [*LINES, "spielgruppen ☃"]:
        assert loaded.scores(text).tobytes() == cuts.scores(text).tobytes()


def test_whatever_decides_about_cuts_is_in_the_fingerprint(learnt: NgramCuts) -> None:
    changes = ({"target": 4.0}, {"order": 3}, {"by": "rise"})
    others = [NgramCuts.learn(LINES, settings(**change)) for change in changes]
    others.append(NgramCuts.learn([*LINES, "neu"], settings()))
    assert all(other.fingerprint != learnt.fingerprint for other in others)


def packed(learnt: NgramCuts, tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "cuts.ngrams.npz"
    learnt.save(path)
    with np.load(path) as arrays:
        content = {name: arrays[name] for name in arrays.files}
    content |= changes
    np.savez_compressed(path, **{name: value for name, value in content.items() if value is not None})
    return path


def u(*values: int) -> Any:
    return np.array(values, np.uint32)


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"format": "x"},
        {"format": np.inf},
        {"format": [1]},
        {"threshold": np.nan},
        {"threshold": None},
        {"counts": None},
        {"counts": u(1)},
        {"sizes": u()},
        {"sizes": u(1, 2, 3, 4)},
        {"symbols": np.array([[1]], np.uint8)},
        {"symbols": np.array([1.5])},
        {"followers": u(3)},
        {"alphabet": u(5, 5)},
        {"alphabet": u(0x110000)},
        {"alphabet": u()},
        {"alphabet": np.array([object()])},
    ],
)
def test_a_file_that_is_not_one_of_n_grams_is_refused(
    learnt: NgramCuts, tmp_path: Path, changes: dict[str, Any]
) -> None:
    path = packed(learnt, tmp_path, **changes)
    with pytest.raises(InputError, match=rf"^{path}: "):
        load_ngrams(path, settings())


@pytest.mark.parametrize("name", ["sizes", "followers", "symbols", "counts"])
def test_numbers_out_of_place_are_refused(learnt: NgramCuts, tmp_path: Path, name: str) -> None:
    with np.load(packed(learnt, tmp_path)) as arrays:
        values = arrays[name]
    for wrong in (np.roll(values, 1), values[::-1], values * 0, values[:-1], values + 200):
        path = packed(learnt, tmp_path, **{name: wrong})
        if name == "counts" and wrong.min() and len(wrong) == len(values):
            load_ngrams(path, settings())  # any other counts are a model too
            continue
        with pytest.raises(InputError, match=rf"^{path}: "):
            load_ngrams(path, settings())


def test_n_grams_that_no_text_has_are_refused(learnt: NgramCuts, tmp_path: Path) -> None:
    """ab without b."""
    arrays = {"alphabet": u(97, 98), "sizes": u(1, 1), "followers": u(1, 1), "symbols": u(2, 3)}
    path = packed(learnt, tmp_path, counts=u(1, 1), **arrays)
    with pytest.raises(InputError, match=rf"^{path}: "):
        load_ngrams(path, settings(order=2))


def test_n_grams_without_a_character_are_refused(learnt: NgramCuts, tmp_path: Path) -> None:
    ones = dict.fromkeys(("sizes", "followers", "symbols", "counts"), u(1, 1))
    path = packed(learnt, tmp_path, alphabet=u(), **ones)
    with pytest.raises(InputError, match=rf"^{path}: "):
        load_ngrams(path, settings(order=2))


def repacked(path: Path, kind: int = zipfile.ZIP_DEFLATED, **changes: bytes) -> None:
    """The same zip, compressed in another way and with other bytes for some arrays."""
    with zipfile.ZipFile(path) as old:
        entries = {name: old.read(name) for name in old.namelist()}
    entries |= {f"{name}.npy": content for name, content in changes.items()}
    with zipfile.ZipFile(path, "w", kind) as new:
        for name, content in entries.items():
            new.writestr(name, content)


@pytest.mark.parametrize("kind", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_file_that_numpy_would_not_write_is_refused(learnt: NgramCuts, tmp_path: Path, kind: int) -> None:
    path = packed(learnt, tmp_path)
    repacked(path, zipfile.ZIP_STORED)
    assert load_ngrams(path, settings()).fingerprint == learnt.fingerprint
    repacked(path, kind)
    with pytest.raises(InputError, match=rf"^{path}: "):
        load_ngrams(path, settings())


@pytest.mark.parametrize("shape", ["(-1,)", "(-8, -1)", "(8L,)", "(", "(" * 60_000, "(0, 8)"])
def test_the_header_of_an_array_is_not_believed(learnt: NgramCuts, tmp_path: Path, shape: str) -> None:
    path = packed(learnt, tmp_path)
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    start = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header
    repacked(path, alphabet=start + bytes(1 << 27 if shape == "(-1,)" else 64))
    tracemalloc.start()
    with pytest.raises(InputError, match=rf"^{path}: .*alphabet"):
        load_ngrams(path, settings())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100 << 20


def test_a_zip_of_very_many_files_is_not_opened(
    learnt: NgramCuts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(learnt, tmp_path, **{f"more{i}": 1 for i in range(entropy.MAX_ENTRIES)})
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with refuses(InputError, f"{path}: ", entropy.MAX_ENTRIES):
        load_ngrams(path, settings())


def test_other_bytes_are_refused(learnt: NgramCuts, tmp_path: Path) -> None:
    path = packed(learnt, tmp_path)
    whole = path.read_bytes()
    for content in (b"", b"{}", whole[: len(whole) // 2], whole[:60] + b"x" + whole[61:]):
        path.write_bytes(content)
        with pytest.raises(InputError, match=rf"^{path}: "):
            load_ngrams(path, settings())


@pytest.mark.parametrize("name", ["alphabet", "sizes", "followers", "symbols", "counts", "threshold"])
def test_a_file_that_would_fill_the_memory_is_not_unpacked(
    learnt: NgramCuts, tmp_path: Path, name: str
) -> None:
    path = packed(learnt, tmp_path, **{name: np.zeros(entropy.MAX_NGRAMS + 1, np.uint8)})
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    with refuses(InputError, f"{path}: ", name):
        load_ngrams(path, settings())
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 100 << 20  # 64 of them a buffer to read the file with


@pytest.mark.parametrize("name", ["sizes", "followers", "symbols", "counts"])
def test_numbers_whose_sum_wraps_around_are_refused(learnt: NgramCuts, tmp_path: Path, name: str) -> None:
    """Four times 2 ** 62 is 0: with such followers numpy would write far beyond what it has allocated."""
    with np.load(packed(learnt, tmp_path)) as arrays:
        values = arrays[name].astype(np.uint64)
    for largest in (1 << 62, (1 << 64) - 1, entropy.MAX_COUNT):
        wrong = values.copy()
        wrong[1:5] = largest
        wrong[1] += values[1:5].sum() if largest == 1 << 62 else 0
        path = packed(learnt, tmp_path, **{name: wrong})
        if name == "counts" and largest == entropy.MAX_COUNT:
            load_ngrams(path, settings())
            continue
        with pytest.raises(InputError, match=rf"^{path}: "):
            load_ngrams(path, settings())


def test_n_grams_of_another_order_are_refused(learnt: NgramCuts, tmp_path: Path) -> None:
    path = packed(learnt, tmp_path)
    with refuses(InputError, f"{path}: ", "order"):
        load_ngrams(path, settings(order=5))


def test_cuts_of_a_config_need_what_was_learnt(learnt: NgramCuts) -> None:
    assert text_cuts(settings(), learnt) is learnt
    for other in (None, train_vocabulary("bpe", LINES, 60)):
        with refuses(ValueError, "", "data.cuts"):
            text_cuts(settings(), other)
