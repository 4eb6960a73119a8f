"""The text is a stream, of which a seeded sample is kept."""

from collections import Counter
from pathlib import Path

from caesura.analysis.lines import Line, Sample, chunks, read_text, subsample


def sampled(total: int, size: int, seed: int) -> list[int]:
    sample = Sample(size, seed)
    for number in range(1, total + 1):
        sample.add(Line(number, "x"))
    return [line.number for line in sample.lines]


def test_a_sample_is_seeded_and_in_order() -> None:
    first = sampled(1000, 50, seed=1)
    assert first == sampled(1000, 50, seed=1) != sampled(1000, 50, seed=2)
    assert first == sorted(set(first))
    assert len(first) == 50
    assert sampled(20, 50, seed=1) == list(range(1, 21))


def test_every_line_is_as_likely() -> None:
    counts = Counter(number for seed in range(2000) for number in sampled(10, 3, seed))
    assert all(abs(counts[number] - 600) < 100 for number in range(1, 11))  # 5 standard deviations


def test_lines_that_are_wanted_are_kept_beside() -> None:
    sample = Sample(1, 1, numbers=(7, 3, 99))
    for number in range(1, 20):
        sample.add(Line(number, "x"))
    assert [line.number for line in sample.chosen] == [7, 3]


def test_a_text_may_be_a_source_two_files_or_a_tsv(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("eins\nviel zu lang\n")
    (tmp_path / "a.en").write_text("one\nfar too long\n")
    (tmp_path / "a.tsv").write_text("eins\tone\t2\n")
    alone = [Line(1, "eins"), Line(2, "", too_long=True)]
    assert list(read_text(str(tmp_path / "a.de"), None, "strict", 5)) == alone
    both = list(read_text(str(tmp_path / "a.de"), str(tmp_path / "a.en"), "strict", 5))
    assert both == [Line(1, "eins", "one"), Line(2, "", "far too long", too_long=True)]
    assert list(read_text(str(tmp_path / "a.tsv"), None, "strict", 5)) == [Line(1, "eins", "one", (2,))]


def test_chunks_and_subsamples_keep_the_order() -> None:
    lines = [Line(n, "x") for n in range(1, 8)]
    assert [len(chunk) for chunk in chunks(lines, 3)] == [3, 3, 1]
    assert subsample(lines, 9, 1) == lines
    few = subsample(lines, 3, 1)
    assert few == sorted(few, key=lambda line: line.number)
    assert len(few) == 3
