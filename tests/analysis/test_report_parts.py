"""The report of a segmenter of parts: a cutter is told by what it can, whoever wrote it."""

from dataclasses import replace
from html import escape
from pathlib import Path

import pytest
from analysis.subjects import SMALL, subject
from analysis.test_report import keep_chapters

from caesura.analysis.lines import Line
from caesura.analysis.report import Report
from caesura.analysis.study import analyse

READER = {"type": "bigru", "embedding_dim": 4, "size": 3}
CIF = {"type": "parts", "reader": READER, "cutter": {"type": "cif"}, "pooling": {"type": "weighted"}}


@pytest.mark.usefixtures("sketched")
def test_a_cutter_that_does_not_halt_has_scores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keep_chapters(monkeypatch, "halting")
    lines = [Line(1, "abbcdeabc"), Line(2, "ddaabb")]
    cif = analyse(subject(CIF | {"rate": {"target": 3.0}}, "cif"), lines, "text", None, SMALL)
    html, figures = Report([cif]).page()
    assert cif.about == "bigru ▸ cif at 3 ▸ weighted on char symbols, 1 encoder layer"
    assert f"cif: {cif.about}" in html
    assert ">Scores<" in html
    assert ">Halting<" not in html
    assert "halting unit" not in html
    assert "The cutter of <strong>cif</strong> reads 15 symbols and segments end after" in html
    assert "reaches 1; what is more than that counts for the next segment.</p>" in html
    assert cif.halting is not None
    assert cif.halting.live == 1.0
    assert [measured.name for measured in cif.figures] == ["live", "spill"]
    assert all(escape(measured.definition) in html for measured in cif.figures)
    assert "scores-cif" in figures
    assert cif.cost.flops is not None
    page = Report([cif]).write(tmp_path)
    assert (page.parent / "tables" / "figures.csv").read_text(encoding="utf-8").count("\n") == 3


def test_a_cutter_without_scores_is_named_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_chapters(monkeypatch, "halting")
    fixed = CIF | {"cutter": {"type": "fixed", "k": 2.5}, "pooling": {"type": "mean"}}
    one = analyse(subject(fixed, "fixed"), [Line(1, "abbcde")], "text", None, replace(SMALL, translate=0))
    assert one.about == "bigru ▸ fixed (k 2.5) ▸ mean on char symbols, 1 encoder layer"
    html, _ = Report([one]).page()
    assert "fixed scores no symbols." in html
    assert one.figures == []
