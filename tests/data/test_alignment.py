"""Cuts where the aligned word of the target changes: the model against all its paths, and its cuts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from itertools import accumulate, product
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
from numbered import build
from wording import refuses

from caesura.config import AlignmentCuts
from caesura.data import alignment
from caesura.data.alignment import NONE, ROUNDS, SMOOTHING, TENSION, AlignedCuts, Aligner, Links, learn_links
from caesura.data.corpus import ParallelText
from caesura.data.vocabulary_training import train_vocabulary

Pair = tuple[Sequence[int], Sequence[int]]
Paths = list[tuple[float, tuple[int, ...], tuple[bool, ...]]]


def settings(target: float, voc_limit: int = 120) -> AlignmentCuts:
    return AlignmentCuts(type="alignment", target=target, voc_limit=voc_limit)


def paths(pair: Pair, table: np.ndarray, staying: float) -> Paths:
    """Every way to link a sentence: its probability, the links, and which of them stay."""
    source, target = pair
    rows, columns = len(source), len(target)
    words, result = [0, *(word + 1 for word in target)], []
    for links in product(range(columns + 1), repeat=rows):
        for stays in product((False, True), repeat=rows - 1):
            probability = 1.0
            for i, j in enumerate(links):
                near = [
                    np.exp(-TENSION * abs((i + 0.5) / rows - (k + 0.5) / columns)) for k in range(columns)
                ]
                own = NONE if j == 0 else (1 - NONE) * near[j - 1] / sum(near)
                if i == 0:
                    probability *= own
                elif stays[i - 1]:
                    probability *= staying * (j == links[i - 1])
                else:
                    probability *= (1 - staying) * own
                probability *= table[words[j], source[i]]
            result.append((probability, links, stays))
    return result


TEXT: list[Pair] = [((0, 1, 2), (0, 1)), ((3,), (2,)), ((2, 0, 3, 1), (1, 0, 2)), ((1, 1), (0, 0, 1))]


def test_the_posterior_is_the_sum_over_all_paths() -> None:
    table = np.random.default_rng(0).dirichlet(np.ones(4), 4)
    pairs = [(np.array(source), np.array(target)) for source, target in TEXT]
    links, stays = Links.of(pairs).posterior(table, 0.3)
    for b, pair in enumerate(TEXT):
        every = paths(pair, table, 0.3)
        total = sum(probability for probability, *_ in every)
        for i in range(len(pair[0])):
            for j in range(len(pair[1]) + 1):
                expected = sum(p for p, linked, _ in every if linked[i] == j) / total
                assert links[i, b, j] == pytest.approx(expected, abs=1e-12)
            if i:
                expected = sum(p for p, _, stayed in every if stayed[i - 1]) / total
                assert stays[i - 1, b] == pytest.approx(expected, abs=1e-12)
    assert links.sum() == pytest.approx(sum(len(source) for source, _ in TEXT))  # nothing on padding


def test_what_is_learnt_is_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    table, staying = np.full((4, 4), 1 / 4), 0.5
    for _ in range(ROUNDS):
        counts, stayed, gaps = np.full((4, 4), SMOOTHING), 0.0, 0
        for source, target in TEXT:
            every = paths((source, target), table, staying)
            total = sum(probability for probability, *_ in every)
            for probability, links, stays in every:
                for symbol, link in zip(source, links, strict=True):
                    counts[target[link - 1] + 1 if link else 0, symbol] += probability / total
                stayed += probability / total * sum(stays)
            gaps += len(source) - 1
        table, staying = counts / counts.sum(1, keepdims=True), stayed / gaps
    pairs = [(np.array(source), np.array(target)) for source, target in TEXT]
    for most in (1, 20, alignment.LINKS):  # sentences that go together
        monkeypatch.setattr(alignment, "LINKS", most)
        steps: list[tuple[int, int]] = []
        learnt = learn_links(pairs, words=3, symbols=4, progress=partial(_added, steps))
        assert steps == sorted(steps)
        assert steps[-1] == (ROUNDS * len(pairs),) * 2
        np.testing.assert_allclose(learnt[0], table, rtol=0, atol=1e-12)
        assert learnt[1] == pytest.approx(staying, abs=1e-12)


def _added(steps: list[tuple[int, int]], *step: int) -> None:
    steps.append(step)  # type: ignore[arg-type]


def bilingual(count: int, seed: int = 0) -> list[tuple[str, str, list[int]]]:
    """Words of one to three stems, a target word per stem, in nearly the same order; and where stems end."""
    draw = random.Random(seed)
    stems = [*{"".join(draw.choices(ascii_lowercase, k=draw.randint(3, 5))) for _ in range(30)}]
    stems.sort()
    result = []
    for _ in range(count):
        order = draw.choices(range(len(stems)), k=draw.randint(3, 8))
        pieces = [stems[order[0]], *((" " if draw.random() < 0.5 else "") + stems[i] for i in order[1:])]
        at = draw.randrange(len(order) - 1)
        order[at : at + 2] = order[at : at + 2][:: draw.choice((1, -1))]
        ends = [*accumulate(map(len, pieces))][:-1]
        result.append(("".join(pieces), " ".join(f"w{i}" for i in order), ends))
    return result


def text(folder: Path, pairs: Sequence[tuple[str, str]]) -> ParallelText:
    for name, side in (("a", 0), ("b", 1)):
        (folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return ParallelText(folder / "a", folder / "b")


def offsets(source: AlignedCuts, sources: Sequence[str]) -> list[list[int]]:
    """The cuts of all lines, as numbering the text reads them."""
    reader, result = source.reader(), []
    for start in range(0, len(sources), 100):
        reader.ahead(sources[start : start + 100])
        for line in sources[start : start + 100]:
            reader.advance(line)
            places = np.array([(at, at + 1) for at in range(len(line))], np.int32).reshape(-1, 2)
            result.append((np.flatnonzero(reader.cuts(line, places) > 0) + 1).tolist())
    return result


def f1(cuts: Sequence[Sequence[int]], gold: Sequence[Sequence[int]]) -> float:
    both = sum(len({*a} & {*b}) for a, b in zip(cuts, gold, strict=True))
    return 2 * both / (sum(map(len, cuts)) + sum(map(len, gold)))


def test_stems_are_found_where_no_space_shows_them(tmp_path: Path) -> None:
    made = bilingual(800)
    sources, gold = [src for src, _, _ in made], [ends for *_, ends in made]
    target = sum(map(len, sources)) / sum(len(ends) + 1 for ends in gold)
    parallel = text(tmp_path, [pair[:2] for pair in made])
    found, again = (offsets(AlignedCuts(parallel, settings(target), nullcontext), sources) for _ in "12")
    assert found == again
    got = sum(map(len, sources)) / sum(len(ends) + 1 for ends in found)
    assert got == pytest.approx(target, rel=0.01)
    spaces = [[at for at, c in enumerate(line) if c == " "] for line in sources]
    assert f1(found, gold) > 0.9 > f1(spaces, gold)
    symbols = train_vocabulary("bpe", sources, 120)
    pieces = [[end for _, end in symbols.encode_spans(line)[1]][:-1] for line in sources]
    assert f1(pieces, gold) < f1(found, gold)
    shuffled = [(a, b) for (a, *_), (_, b, _) in zip(made, made[1:] + made[:1], strict=True)]
    other = AlignedCuts(text(tmp_path, shuffled), settings(target), nullcontext)
    assert f1(offsets(other, sources), gold) < f1(found, gold) - 0.1  # it is the translation that shows them


def test_a_sample_of_the_text_tells_how_to_cut_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bilingual(900)
    sources = [src for src, *_ in made]
    source = AlignedCuts(text(tmp_path, [pair[:2] for pair in made]), settings(4.5), nullcontext)
    monkeypatch.setattr(alignment, "SAMPLE", 300)
    cuts = offsets(source, sources)
    assert sum(map(len, sources)) / sum(len(ends) + 1 for ends in cuts) == pytest.approx(4.5, rel=0.05)


def test_a_corpus_has_them_and_marks_what_is_not_aligned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = bilingual(60)
    pairs = [pair[:2] for pair in made]
    pairs[3:3] = [("", "leer"), ("leer", "")]
    monkeypatch.setattr(alignment, "LONGEST", max(len(src) for src, *_ in made) - 1)
    parallel = text(tmp_path, pairs)
    characters = train_vocabulary("char", [src for src, _ in pairs])
    words = train_vocabulary("word", [trg for _, trg in pairs])
    source = AlignedCuts(parallel, settings(5.0), nullcontext)
    corpus = build(parallel, characters, words, tmp_path / "ids", "train", cuts=source, cores=3)
    assert len(corpus) == 60
    marks = [corpus.cuts(i) for i in range(60)]
    unknown = [i for i, row in enumerate(marks) if row is not None and (row < 0).all()]
    longest = max(len(src) for src, *_ in made)
    assert unknown == [i for i, (src, *_) in enumerate(made) if len(src) == longest]
    assert all(
        row is not None and {*row.tolist()} <= {0, 1} for i, row in enumerate(marks) if i not in unknown
    )
    fingerprints = [
        AlignedCuts(parallel, one, nullcontext).fingerprint for one in (settings(5.0), settings(4.0))
    ]
    assert fingerprints[0] != fingerprints[1]


def test_a_target_of_many_characters_is_aligned_by_them() -> None:
    characters = [chr(0x4E00 + i) for i in range(8400)]
    pairs = [(src, "".join(characters[140 * i : 140 * i + 140])) for i, (src, *_) in enumerate(bilingual(60))]
    assert Aligner.learn(lambda: pairs, lambda: pairs, settings(4.0)).vocabularies[1].kind == "char"


@pytest.mark.parametrize(
    ("target", "voc_limit", "key"), [(1.5, 120, "target"), (1000.0, 120, "target"), (4.0, 12, "voc_limit")]
)
def test_a_rate_that_cannot_be_is_refused(target: float, voc_limit: int, key: str) -> None:
    pairs = [pair[:2] for pair in bilingual(50)]
    with refuses(ValueError, f"{key} "):
        Aligner.learn(lambda: pairs, lambda: pairs, settings(target, voc_limit))
