"""What is known of the training text, and whether all of it is."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import tiny_model

from caesura.analysis import training_text as module
from caesura.analysis.training_text import training_text, unseen_lines
from caesura.config import Files
from caesura.data.words import WORDS, WordCounts, save_words

SOME = WordCounts({"kept": 3}, 9, False)


def test_a_text_that_is_not_read_to_its_end_is_not_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.tsv").write_text("ab\tx\ncd\ty\nab\tz\n", encoding="utf-8")
    whole = training_text(tiny_model(), tmp_path, str(tmp_path / "t.tsv"), "strict")
    assert whole.src == WordCounts({"ab": 2, "cd": 1}, 3, True)
    assert whole.trg == WordCounts({"x": 1, "y": 1, "z": 1}, 3, True)
    monkeypatch.setattr(module, "LINES", 2)
    some = training_text(tiny_model(), tmp_path, str(tmp_path / "t.tsv"), "strict")
    assert some.src == WordCounts({"ab": 1, "cd": 1}, 2, False)
    monkeypatch.setattr(module, "LINES", 3)
    assert training_text(tiny_model(), tmp_path, str(tmp_path / "t.tsv"), "strict") == whole


def test_a_given_text_stands_for_kept_words_that_are_not_all(tmp_path: Path) -> None:
    (tmp_path / "t.de").write_text("ab ab\n", encoding="utf-8")
    save_words(tmp_path / WORDS, SOME, SOME)
    tiny_model().save_pretrained(tmp_path)
    assert training_text(tiny_model(), tmp_path, None, "strict").src == SOME
    given = training_text(tiny_model(), tmp_path, str(tmp_path / "t.de"), "strict")
    assert given.src == WordCounts({"ab": 2}, 2, True)
    assert given.trg == SOME  # the file has no target side
    complete = replace(SOME, complete=True)
    save_words(tmp_path / WORDS, complete, SOME)
    tiny_model().save_pretrained(tmp_path)
    assert training_text(tiny_model(), tmp_path, str(tmp_path / "t.de"), "strict").src == complete


def test_a_line_is_unseen_if_neither_side_is_a_line_of_the_training_text(tmp_path: Path) -> None:
    for lang, lines in {"de": ["ja", "nein", "so ."], "en": ["yes", "no", "so"]}.items():
        (tmp_path / f"t.{lang}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    text = Files(src=tmp_path / "t.de", trg=tmp_path / "t.en")
    sources = ["ja", "ja .", "nein doch", "so", "nein"]
    references = ["yes", "yes", "oh no", "so .", "never"]
    assert unseen_lines(text, sources, references, "strict") == [2, 3]
    (tmp_path / "t.tsv").write_text("ja\tyes\nnein\tno\n", encoding="utf-8")
    assert unseen_lines(tmp_path / "t.tsv", sources, references, "strict") == [2, 3]
    (tmp_path / "t.en").unlink()
    assert unseen_lines(text, sources, references, "strict") is None
