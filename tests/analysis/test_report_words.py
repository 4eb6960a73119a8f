"""What the report says in words is true of odd numbers too: none, one, nothing gained, everything alike."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from analysis.subjects import LINES, SMALL, subject
from analysis.test_report import Page, keep_chapters
from helpers import RECURRENT, make_config
from hypothesis import given
from hypothesis import strategies as st

from caesura.analysis.agreement import Agreement
from caesura.analysis.chapters import _fall, _gates_caption, _went
from caesura.analysis.drawings import count
from caesura.analysis.findings import Analysis
from caesura.analysis.glance import Bar, Gauge, _gauge_html
from caesura.analysis.lines import Line
from caesura.analysis.models import describe
from caesura.analysis.moved_chapter import _gain
from caesura.analysis.report import Report
from caesura.analysis.study import analyse
from caesura.analysis.tables import Column
from caesura.evaluation.boundaries import scores_of_counts
from caesura.evaluation.scores import paired_bootstrap

NUMBERS = st.floats(-1000, 1000) | st.floats(-1e-3, 1e-3) | st.just(-0.0)


@pytest.fixture(scope="module")
def one() -> Analysis:
    return analyse(subject(), LINES, "text", None, replace(SMALL, moved=0))


@given(st.dictionaries(st.sampled_from(["drop", "swap"]), st.lists(NUMBERS, min_size=2), min_size=1))
def test_a_fall_is_a_fall(chrf: dict[str, list[float]]) -> None:
    shown = re.fullmatch(r"falls by up to ([\d.]+) points|does not fall", _fall(chrf))
    assert shown
    most = max(values[0] - values[-1] for values in chrf.values())
    assert float(shown[1] or 0) == max(float(f"{most:.1f}"), 0)


@given(NUMBERS)
def test_a_gain_has_a_size_and_a_zero_no_sign(number: float) -> None:
    assert re.fullmatch(r"(gains|costs) [\d.]+ nats per target symbol|changes nothing", _gain(number))
    assert "-0." not in _gain(number)
    assert not re.fullmatch(r"-0\.?0*%?", Column("x", ".2f").show(number))
    assert float(Column("x", ".2f").show(number)) == float(f"{number:.2f}")


def test_what_did_not_move_goes_nowhere() -> None:
    assert _went(1.001, 0.999, ".2f") == "1.00 at both ends"
    assert _went(1.0, 2.0, ".1f") == "from 1.0 to 2.0"
    assert [count(n, "line") for n in (0, 1, 2000)] == ["0 lines", "1 line", "2,000 lines"]


@pytest.mark.parametrize(
    ("cut", "given_", "ending"),
    [
        (0, 0, ""),
        (0, 3, "None of the 3 gold boundaries was cut."),
        (1, 1, "Measured at the 1 gold boundary that it cut, of 1."),
        (2, 1000, "Measured at the 2 gold boundaries that it cut, of 1,000."),
    ],
)
def test_gold_boundaries_are_counted_in_words(one: Analysis, cut: int, given_: int, ending: str) -> None:
    assert one.gates is not None
    gates = replace(one.gates, gold_boundaries=cut, gold_given=given_, profiles=one.gates.profiles[:1])
    assert _gates_caption(gates).endswith(ending)


@pytest.mark.usefixtures("sketched")
def test_one_of_everything_is_singular() -> None:
    single = analyse(subject(), [Line(1, "a", "b", (1,))], "text", None, SMALL)
    html = Report([single]).page()[0]
    text = re.sub(r"<[^>]+>", " ", re.sub(r"<(style|svg).*?</\1>", " ", html, flags=re.DOTALL))
    plural = r"sentences|lines|segments|characters|symbols|boundaries|gaps|times|strings|steps|words"
    assert re.findall(rf"(?<![\d.,])1 (?:{plural})\b", text) == []
    assert "-0.0" not in text


def test_references_that_give_the_same_numbers_share_a_table(
    one: Analysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_chapters(monkeypatch, "segments")
    rows = {name: scores_of_counts(4, 4, 2) for name in ("model", "every character")}
    other = rows | {"model": scores_of_counts(3, 4, 3)}
    tables = [Agreement("a", "x", 9, rows), Agreement("<b>", "y", 9, rows), Agreement("c", "z", 9, other)]
    html = Report([replace(one, agreements=tables, name="m")]).page()[0]
    Page(html)
    assert re.findall(r'aria-label="boundaries against ([^"]*)"', html) == ["a and &lt;b&gt;", "c"]
    assert "<bdi>m, every character</bdi>" in html


def test_models_that_read_a_line_alike_are_told_once(one: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_chapters(monkeypatch, "sentences")
    html = Report([one, replace(one, name="twin"), replace(one, name="late", readings=[])]).page()[0]
    assert html.count('<dt class="new">act, twin</dt>') == len(one.readings) == html.count('<dt class="new">')


def test_entities_are_shown_as_they_are_and_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_chapters(monkeypatch)
    settings = replace(SMALL, translate=0, moved=0)

    def page(text: str) -> str:
        return Report([analyse(subject(), [Line(1, text)], "text", None, settings)]).page()[0]

    assert "<code>&amp;quot;</code> for &quot;; such entities" in page("a &nonsense; &quot; b")
    assert "such entities" not in page("a & b; &nonsense;")


def test_the_page_names_the_baseline(one: Analysis, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_chapters(monkeypatch)
    lines = [line.reference or "" for line in LINES]
    compared = paired_bootstrap({"<twin>": lines, "act": lines}, lines, samples=5)
    html = Report([one, replace(one, name="<twin>")], compared).page()[0]
    assert html.count("paired bootstrap against &lt;twin&gt;") == 1
    assert "paired bootstrap of BLEU against &lt;twin&gt;" in html


def test_a_share_of_one_fills_a_bar_and_no_less_does() -> None:
    bar = Bar(0.86, "0.86", "chance 0.30", 0.3)
    assert "--to:86.0%" in _gauge_html(["a"], Gauge("Where cuts fall", "F1", [bar], full=1.0))
    assert "--to:100.0%" in _gauge_html(["a"], Gauge("Cost", "seconds", [bar]))


def test_a_report_says_which_models_are_missing(one: Analysis) -> None:
    assert (
        "2 of 4 models: no validation yet of x&lt;y"
        in Report([one], {}, "2 of 4 models: no validation yet of x<y")._head()
    )


def test_cuts_from_outside_are_called_by_their_kind() -> None:
    parts = {"reader": {"type": "lookup", "embedding_dim": 4}, "cutter": {"type": "given"}, "pooling": "mean"}
    side = {"lang": "xx", "level": "char"}
    data = {"train": "train.tsv", "dev": "dev.tsv", "src": side, "trg": side}
    config = make_config(
        parts | {"output_dim": 5}, {}, RECURRENT, data=data | {"cuts": {"type": "entropy", "target": 5.0}}
    )
    named = describe(SimpleNamespace(config=config))
    assert named.startswith("lookup ▸ entropy (target 5, order 6) ▸ mean on char symbols")
