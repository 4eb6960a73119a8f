"""From a config's text to vocabularies and numbers."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from cli.program import write_config, write_corpus
from wording import refuses

from caesura.config import Training, load_config
from caesura.data.corpus import ParallelText
from caesura.data.sentences import read_sentences
from caesura.data.vocabulary import SPECIALS
from caesura.data.words import WORDS, load_words
from caesura.errors import InputError
from caesura.model_folder import SRC_VOCABULARY, TRG_VOCABULARY
from caesura.training.prepare import Prepared, prepare, small_text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path, digits=5)
    return tmp_path


def prepared(folder: Path, system: str = "char", *settings: str, resuming: bool = False) -> Prepared:
    config = load_config(write_config(folder / "c.yaml", system), settings)
    (folder / "out").mkdir(exist_ok=True)
    return prepare(config, folder / "out", resuming, lambda what, done, total: None)


def test_symbols_are_counted_on_their_own_side(folder: Path) -> None:
    data = prepared(folder)
    for vocabulary, language in ((data.src_vocabulary, "de"), (data.trg_vocabulary, "en")):
        letters = set((folder / f"train.{language}").read_text()) - {"\n"}
        assert set(vocabulary.tokens) == letters | set(SPECIALS)


def test_a_joint_vocabulary_has_both_sides_and_is_one(folder: Path) -> None:
    data = prepared(folder, "bpe", "data.joint=true", "data.src.voc_limit=90", "data.trg.voc_limit=90")
    assert data.src_vocabulary is data.trg_vocabulary
    for text in ("fünf sechs", "two seven"):
        assert data.src_vocabulary.decode(data.src_vocabulary.encode(text)) == text
    saved = [(folder / "out" / name).read_bytes() for name in (SRC_VOCABULARY, TRG_VOCABULARY)]
    assert saved[0] == saved[1]


@pytest.mark.parametrize("joint", [False, True])
def test_the_folder_keeps_how_often_each_word_was_there(folder: Path, joint: bool) -> None:
    prepared(folder, "bpe", f"data.joint={joint}", "data.src.voc_limit=90", "data.trg.voc_limit=90")
    for side, language in zip(load_words(folder / "out" / WORDS), ("de", "en"), strict=True):
        words = (folder / f"train.{language}").read_text().split()
        assert side.counts == Counter(words)
        assert (side.total, side.complete) == (len(words), True)


def test_separate_vocabularies_know_only_their_side(folder: Path) -> None:
    data = prepared(folder, "bpe")
    assert data.src_vocabulary != data.trg_vocabulary
    assert "<unk>" in data.trg_vocabulary.decode(data.trg_vocabulary.encode("fünf"))


def test_a_resumed_run_takes_the_vocabularies_of_its_folder(folder: Path) -> None:
    first = prepared(folder, "word")
    with (folder / "train.de").open("a") as src, (folder / "train.en").open("a") as trg:
        src.write("zehn\n"), trg.write("ten\n")
    again = prepared(folder, "word", resuming=True)
    assert again.src_vocabulary == first.src_vocabulary
    assert again.digests != first.digests
    fresh = prepared(folder, "word")
    assert len(fresh.src_vocabulary) == len(first.src_vocabulary) + 1


def test_a_run_goes_on_without_the_cache_and_where_the_text_cannot_be_written_to(folder: Path) -> None:
    first = prepared(folder)
    numbered = [(src.tolist(), trg.tolist()) for src, trg in first.corpus]
    shutil.rmtree(folder / "caesura-cache")
    (folder / "caesura-cache").touch()  # root may write anywhere
    for _ in range(2):
        again = prepared(folder, resuming=True)
        assert [(src.tolist(), trg.tolist()) for src, trg in again.corpus] == numbered
        assert again.digests == first.digests
    assert {path.suffix for path in (folder / "out" / "cache").iterdir()} == {".bin", ".idx", ".lock"}


def test_the_length_filter_counts_symbols_and_says_what_it_dropped(folder: Path) -> None:
    lengths = [len(line.split()) for line in (folder / "train.de").read_text().splitlines()]
    data = prepared(folder, "word", "data.src.max_length=3")
    assert len(data.corpus) == sum(n <= 3 for n in lengths) < len(lengths)
    assert data.corpus.report.dropped == {"source longer than 3 symbols": sum(n > 3 for n in lengths)}


def test_a_filter_that_leaves_nothing_is_refused_with_its_report(folder: Path) -> None:
    with refuses(InputError, "", "train.de: ", "60 pairs read, 0 kept"):
        prepared(folder, "char", "data.trg.max_length=1")


def test_a_source_over_the_limit_becomes_empty_with_its_number_and_boundaries(tmp_path: Path) -> None:
    table = tmp_path / "dev.tsv"
    table.write_text("abc\tx\t1\nabcdef\ty\t2 4\nabcd\tz\t3\n")
    pairs = read_sentences(ParallelText(table), "strict", max_input=5)
    assert pairs.sources == ["abc", "", "abcd"]
    assert pairs.references == ["x", "y", "z"]
    assert pairs.gold == [[1], [], [3]]
    assert pairs.too_long == [2]
    assert read_sentences(ParallelText(table), "strict").too_long == []


def test_boundaries_count_only_where_every_line_has_them(tmp_path: Path) -> None:
    table = tmp_path / "dev.tsv"
    table.write_text("abc\tx\t1\nabc\ty\n")
    assert read_sentences(ParallelText(table), "strict").gold is None
    table.write_text("abc\tx\t1\nabc\ty\t\n")
    assert read_sentences(ParallelText(table), "strict").gold == [[1], []]


def test_reading_reports_how_far_it_is(folder: Path) -> None:
    listener = []
    config = load_config(write_config(folder / "c.yaml"))
    (folder / "out").mkdir()
    prepare(config, folder / "out", False, lambda *report: listener.append(report))
    assert listener == [("reading the vocabulary", 60, 60), ("numbering the training text", 60, 60)]


@pytest.mark.parametrize(
    ("pairs", "settings", "lines"),
    [
        (1, {}, 2),
        (3, {}, 2),
        (3, {"updates": 5}, 1),
        (99, {"validation_freq": 1980}, 1),
        (99, {"validation_freq": 1981}, 2),
        (100, {"validation_freq": 2000}, 0),
        (399, {}, 1),
        (400, {}, 0),
    ],
)
def test_what_is_said_of_a_small_training_text(pairs: int, settings: dict[str, int], lines: int) -> None:
    notices = [*small_text(pairs, Training(**settings))]
    assert len(notices) == lines
    if not settings:
        assert f"training.validation_freq={20 * pairs}" in notices[-1] if notices else pairs >= 400


def test_files_that_are_exchanged_are_warned_of_and_read(folder: Path) -> None:
    def warnings(*settings: str) -> list[str]:
        notices = prepared(folder, "char", *settings).notices
        return [text for text in notices if text.startswith("warning: ")]

    assert warnings("training.updates=1") == []
    (warning,) = warnings(f"data.train={{src: {folder}/train.en, trg: {folder}/train.de}}")
    assert "data.train" in warning
    (warning,) = warnings("data.src.lang=zh")
    assert "data.src.lang" in warning
