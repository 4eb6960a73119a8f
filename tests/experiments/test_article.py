"""A page about results, whose tables `reproduce --draw` makes anew."""

from pathlib import Path

import pytest
from experiments.test_result_tables import CUTS, result
from wording import refuses

from caesura.errors import InputError
from caesura.evaluation.bootstrap import Difference
from caesura.experiments.appendix import Pair
from caesura.experiments.article import article_table, page_of, refresh

RESULTS = [result("every", 1.0, 26.0), result("cif", 4.0, 25.0, cuts=CUTS)]
ABOVE = Difference(-1.0, -1.25, -0.75, 0.01)
TABLE = article_table("main", RESULTS, [Pair("cif", 1, "every", ABOVE, ABOVE)])


def test_a_table_has_few_columns_and_the_distance_from_the_first_system() -> None:
    heads = [column.name for column in TABLE.columns]
    assert heads[:4] == ["system", "seeds", "BLEU", "BLEU - every (95%)"]
    assert "ended by" not in heads
    every, cif = (dict(zip(heads, row, strict=True)) for row in TABLE.rows)
    assert every["BLEU - every (95%)"] is None
    assert cif["BLEU - every (95%)"] == "-1.00 (-1.25 to -0.75)"
    assert (cif["fidelity"], cif["word F1 / random"]) == ("0.93 ± 0.02", "0.410 / 0.350")
    assert len(article_table("main", RESULTS, []).columns) == len(heads) - 1


def test_tables_are_made_anew_and_words_stay(tmp_path: Path) -> None:
    page = page_of(tmp_path / "answer.1")
    assert page.name == "answer.1.md"
    assert not refresh(page, {"main": TABLE})
    words = "# Title\n\n<!-- table main -->\n| old |\n\n| older |\n<!-- end -->\n\nWords.\n"
    page.write_text(f"{words}\n<!-- table main -->\n<!-- end -->\n", encoding="utf-8")
    assert refresh(page, {"main": TABLE})
    made = f"<!-- table main -->\n{TABLE.markdown()}<!-- end -->\n"
    assert page.read_text(encoding="utf-8") == f"# Title\n\n{made}\nWords.\n\n{made}"
    assert refresh(page, {"main": TABLE})
    assert page.read_text(encoding="utf-8") == f"# Title\n\n{made}\nWords.\n\n{made}"
    page.write_text("Words alone.\n", encoding="utf-8")
    assert not refresh(page, {"main": TABLE})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<!-- table main -->\n| old |\n", 2),
        ("<!-- table main -->", 2),
        ("<!-- table main -->\n<!-- table main -->\n<!-- end -->\n", 2),
        ("<!-- table main -->\n| old |\nWords.\n<!-- end -->\n", 2),
        ("| old |\n<!-- end -->\n", 3),
    ],
)
def test_a_place_without_an_end_or_with_words_is_refused_and_nothing_is_written(
    tmp_path: Path, text: str, line: int
) -> None:
    page = tmp_path / "answer.md"
    before = f"Words.\n{text}".encode()
    page.write_bytes(before)
    with refuses(InputError, f"{page}:{line}: "):
        refresh(page, {"main": TABLE})
    assert page.read_bytes() == before
    assert [*tmp_path.iterdir()] == [page]


def test_words_links_and_line_endings_stay_as_they_are(tmp_path: Path) -> None:
    page, link = tmp_path / "real.md", tmp_path / "answer.md"
    link.symlink_to(page)
    made = TABLE.markdown().replace("\n", "\r\n")
    words = "Words | <b>\u2028\r\n<!-- table main --> \r\n{}<!-- end -->\r\nMore <!-- end -->"
    page.write_bytes(words.format("").encode())
    assert refresh(link, {"main": TABLE})
    assert link.is_symlink()
    assert page.read_bytes().decode() == words.format(made)


def test_a_page_that_is_read_only_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "answer.md"
    page.write_text("<!-- table main -->\n<!-- end -->\n", encoding="utf-8")
    monkeypatch.setattr("os.access", lambda *_: False)  # for root, every file can be written
    with refuses(InputError, f"{page}: "):
        refresh(page, {"main": TABLE})
    assert "|" not in page.read_text(encoding="utf-8")


def test_a_table_that_the_results_do_not_have_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "answer.md"
    page.write_text("<!-- table mane -->\n<!-- end -->\n", encoding="utf-8")
    with refuses(InputError, f"{page}:1: "):
        refresh(page, {"main": TABLE})


def test_a_page_in_another_encoding_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "answer.md"
    page.write_bytes("Übersetzung".encode("latin-1"))
    with refuses(InputError, f"{page}: "):
        refresh(page, {"main": TABLE})
