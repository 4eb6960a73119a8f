"""Attention of several layers and heads: maps, statistics, the chapter of a report, its buttons."""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from analysis.cuts import cut
from analysis.subjects import LINES, SMALL, subject
from analysis.test_report import Page, keep_chapters
from analysis.test_report_parts import CIF
from chromium import Browser, needed_browser
from helpers import ACT, BIGRU, TRANSFORMER, tiny_model
from layout import check_layout

from caesura.analysis.attention import AttentionMap, AttentionTally, attention_maps, attention_statistics
from caesura.analysis.findings import Analysis
from caesura.analysis.models import describe
from caesura.analysis.report import Report
from caesura.analysis.study import analyse
from caesura.data.batching import collate
from caesura.inference import Translator

TEXTS, TARGETS = ["abcdefgh", "ab", "hgfeaab"], ["abc", "edcba", ""]
BY_RATE = CIF | {"rate": {"target": 2.0}}


@pytest.fixture(scope="module")
def model() -> Translator:
    return tiny_model(BY_RATE, decoder=TRANSFORMER, encoder=TRANSFORMER | {"places": "symbols"})


def test_maps_of_heads_are_those_of_the_sentence_alone(model: Translator) -> None:
    cuts = [output.segmentation for output in model.process(TEXTS, None)]
    maps = list(attention_maps(model, TEXTS, TARGETS, cuts, heads=True))
    assert [*attention_maps(model, TEXTS, TARGETS, cuts)] == maps  # except for the heads
    for text, target, one in zip(TEXTS, TARGETS, maps, strict=True):
        batch = collate([(model.src_vocabulary.encode(text), model.trg_vocabulary.encode(target))])
        assert batch.trg_in is not None
        with torch.no_grad():
            _, encoded = model.encode(batch.src, batch.src_lengths)
            expected = model.decoder.look(encoded, batch.trg_in)[0].numpy()
        assert one.heads is not None
        assert one.heads.shape == (2, 2, len(target) + 1, len(one.source))
        assert np.allclose(one.heads, expected, atol=1e-6)
        assert one.layer == 1
        assert np.allclose(one.of(1), one.weights, atol=1e-6)
        assert np.array_equal(one.of(2, 1), one.heads[1, 0])
    with pytest.raises(ValueError, match="without heads"):
        replace(maps[0], heads=None).of(1)


def test_shares_of_known_heads() -> None:
    """ab c: the first characters are a and c. One head looks at c alone, the other evenly at all."""
    even = [[0.25] * 4] * 2
    heads = np.array([[[[0, 0, 0, 1]] * 2, even]], dtype=np.float32)
    tally = AttentionTally()
    tally.add(AttentionMap(["a", "b", "␣", "c∎"], ["x", "∎"], even, 1, heads), "ab c", cut("a|b| |c"))
    s = tally.result("references")
    assert s is not None
    assert (s.entropy, s.entropy_uniform) == (pytest.approx(2), pytest.approx(2))
    # The symbols stand at 1/4 and 3/4, the steps at 1/8, 3/8, 5/8 and 7/8.
    assert s.distance == s.distance_uniform == pytest.approx((1 + 1 + 3 + 5) / 32)
    close, wide = s.heads
    assert (close.layer, close.head, close.first, close.entropy) == (1, 1, 1.0, 0.0)
    assert close.distance == pytest.approx((5 / 8 + 1 / 8) / 2)
    assert (wide.layer, wide.head, wide.first) == (1, 2, pytest.approx(s.first))
    assert (wide.entropy, wide.distance) == (pytest.approx(s.entropy), pytest.approx(s.distance))


def test_a_single_attention_has_no_heads() -> None:
    model = tiny_model(ACT)
    cuts = [output.segmentation for output in model.process(TEXTS, None)]
    [*maps] = attention_maps(model, TEXTS, TARGETS, cuts, heads=True)
    assert {(one.layer, one.heads) for one in maps} == {(None, None)}
    s = attention_statistics(model, TEXTS, TARGETS, cuts)
    assert s is not None
    assert (s.heads, s.layer) == ([], None)
    assert 0 < s.entropy < s.entropy_uniform <= math.log2(len(TEXTS[0]) + 1)


@pytest.fixture(scope="module")
def analyses() -> list[Analysis]:
    """A Transformer, and a Transformer decoder behind a recurrent encoder."""
    settings = replace(SMALL, examples=1, drawn=1, moved=0)
    encoders = {"whole": TRANSFORMER, "mixed": BIGRU}
    subjects = [subject(BY_RATE, name, decoder=TRANSFORMER, encoder=e) for name, e in encoders.items()]
    return [analyse(one, LINES, "text", None, settings) for one in subjects]


@pytest.fixture(scope="module")
def page(analyses: list[Analysis], tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        keep_chapters(patch, "gates", "attention")
        return Report(analyses[:1]).write(tmp_path_factory.mktemp("heads"))


def test_a_report_has_heads_and_no_chapter_of_gates_that_are_not_there(
    analyses: list[Analysis], page: Path
) -> None:
    whole, mixed = analyses
    assert whole.gates is None
    assert mixed.gates is not None
    html = page.read_text(encoding="utf-8")
    read = Page(html)
    assert read.links == ["#attention"]
    assert "gates" not in html.lower()
    [number] = [drawn.number for drawn in whole.drawn]
    figures = {f"attention-whole-{number}", f"heads-whole-{number}", "attention-places"}
    assert {path.stem for path in (page.parent / "figures").glob("*.svg")} == figures
    assert figures <= set(read.ids)
    assert len(read.ids) == len(set(read.ids))
    assert all(url.startswith(("data:", "#")) for url in read.fetched)
    assert "<script" not in html
    rows = (page.parent / "tables" / "heads.csv").read_text(encoding="utf-8").splitlines()
    assert [row.split(",")[:3] for row in rows[1:]] == [["whole", i, j] for i in "12" for j in "12"]
    [numbers] = Report([whole]).numbers()["models"]
    assert len(numbers["attention"]["heads"]) == 4
    assert numbers["drawn"][0]["attention"]["heads"] is None
    assert numbers["drawn"][0]["attention"]["layer"] == 1


@pytest.mark.usefixtures("sketched")
def test_gates_stay_where_one_of_the_models_has_them(
    analyses: list[Analysis], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_chapters(monkeypatch, "gates")
    html = Report(analyses).page()[0]
    assert html.count("has no gates that could be shown.") == 1
    assert "The encoder of whole has no gates" in html


def test_the_depth_of_transformers_is_named(analyses: list[Analysis]) -> None:
    layers = "Transformer decoder layers"
    assert [a.about.split(", ", 1)[1] for a in analyses] == [
        f"2 Transformer encoder layers, 2 {layers}",
        f"1 encoder layer, 2 {layers}",
    ]
    usual = {key: value for key, value in TRANSFORMER.items() if key != "num_layers"}
    one = subject(BY_RATE, "one", encoder=usual).model
    assert describe(one).endswith(", 6 Transformer encoder layers")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser(needed_browser()) as opened:
        yield opened


def test_buttons_choose_the_layer_and_the_head(browser: Browser, page: Path) -> None:
    browser.open(page, anchor="attention")
    browser.unfold()
    check_layout(browser)
    figure = browser.page.locator("figure[id^=attention-whole]")
    shown = "images => images.filter(e => e.getClientRects().length).map(e => e.href.baseVal)"

    def seen() -> str:
        [one] = figure.locator(".own image, .maps image").evaluate_all(shown)
        return str(one)

    usual = seen()
    groups = (figure.get_by_role("radiogroup", name=name) for name in ("layer", "head"))
    layers, heads = (group.locator("input") for group in groups)
    assert (layers.count(), heads.count()) == (2, 3)
    assert (layers.nth(0).is_checked(), heads.nth(0).is_checked()) == (True, True)
    layers.nth(0).focus()
    every = {usual}
    browser.page.keyboard.press("ArrowRight")
    every.add(seen())
    browser.page.keyboard.press("Tab")
    for _ in range(2):
        browser.page.keyboard.press("ArrowRight")
        every.add(seen())
    assert (layers.nth(1).is_checked(), heads.nth(2).is_checked()) == (True, True)
    assert len(every) == 4
    layers.nth(0).check()
    heads.nth(0).check()
    assert seen() == usual
