"""One report of everything: whole, from disk alone, and honest where something is missing."""

import csv
import gc
import json
import random
import re
import sys
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from unittest import mock

import pytest
import torch
from analysis.subjects import LINES, SMALL, TRAINING, subject
from helpers import ACT, ACT_DECODER, LOOKUP, make_config, tiny_model
from wording import refuses

from caesura.analysis import chapters, plots, study, tables
from caesura.analysis.drawings import Figures
from caesura.analysis.findings import Analysis
from caesura.analysis.gold import Gold
from caesura.analysis.lines import Line
from caesura.analysis.report import Report
from caesura.analysis.speed import Speed
from caesura.analysis.study import AnalysisSettings, Subject, Translations, analyse
from caesura.analysis.training_text import TrainingText
from caesura.data.vocabulary import CharVocabulary
from caesura.errors import InputError
from caesura.evaluation.scores import score
from caesura.inference import Translator


def keep_chapters(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    """Reports have these chapters alone: drawing all of them takes seconds."""
    kept = tuple(chapter for chapter in chapters.CHAPTERS if chapter[0] in keys)
    assert len(kept) == len(keys)
    monkeypatch.setattr(chapters, "CHAPTERS", kept)


class Page(HTMLParser):
    """What is in a page, with every element closed that was opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.svgs = self.figures = 0
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if "id" in values:
            self.ids.append(str(values["id"]))
        if tag == "a":
            self.links.append(str(values["href"]))
        self.fetched += [str(v) for k, v in attrs if k in ("src", "href", "xlink:href") and tag != "a"]
        self.svgs += tag == "svg"
        self.figures += tag == "figure"
        if tag not in ("meta", "link", "br", "wbr"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        before = list(self._open)
        self.handle_starttag(tag, attrs)
        self._open = before

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing(analyses: list[Analysis], shown: tuple[str, Figures]) -> None:
    html, figures = shown
    page = Page(html)
    assert page.svgs == page.figures == len(figures)
    numbers = [reading.number for reading in analyses[0].readings[:2]]
    expected = {f"{kind}-{a.name}-{n}" for kind in ("gates", "attention") for a in analyses for n in numbers}
    expected |= {f"halting-act-{n}" for n in numbers} | {f"profiles-{a.name}" for a in analyses}
    expected |= {f"flips-act-{n}" for n in numbers} | {"gradient-act"}
    expected |= {"lengths", "characters-act", "scores-act", "attention-places", "typos", "price"}
    assert set(figures) == expected | {"bleu-by-length", "bleu-by-rarity"}
    assert set(figures) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    sections = ["segments", "sentences", "halting", "moved", "gates", "attention", "errors", "cost"]
    assert page.links == [f"#{key}" for key in sections]
    assert set(sections) <= set(page.ids)
    assert all(url.startswith(("data:", "#")) for url in page.fetched)
    assert "<script" not in html
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)


def test_models_that_cut_the_first_line_alike_are_named_together(
    analyses: list[Analysis], monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_chapters(monkeypatch)
    char, act = analyses
    html = Report([char, act, replace(char, name="deep <char>")]).page()[0]
    named = re.findall(r'<p class="who">(.*?)</p><div class="cut hero"', html)
    assert named == [
        f"char: {char.about}; deep &lt;char&gt;: {char.about}",
        f"act: {act.about}",
    ]


@pytest.mark.parametrize(
    ("given", "more", "message", "also"),
    [
        ("", "", "halts after 0%", ""),
        ("ac", ", cut_after ac", "segments end after 25%", ", and after ac"),
    ],
)
@pytest.mark.usefixtures("sketched")
def test_cuts_that_are_given_are_not_told_as_the_units(
    given: str, more: str, message: str, also: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_chapters(monkeypatch, "halting")
    segmenter = ACT | {"cut_after": given, "halting_bias": -20.0, "learn_halting": False, "tau": 0.0}
    lines = [Line(1, "abbcde"), Line(2, "dd")]
    html = Report([analyse(subject(segmenter), lines, "text", None, replace(SMALL, translate=0))]).page()[0]
    assert f"tau 0, halting_bias -20, learn_halting false{more}, 1 encoder layer" in html
    assert f"reads 8 symbols and {message} of them; no score gets a gradient." in html
    assert f"reaches 0.99{also}.</p>" in html


def test_everything_is_written(analyses: list[Analysis], shown: tuple[str, Figures], written: Path) -> None:
    html, figures = shown
    assert (written / "report.html").read_text(encoding="utf-8") == html  # drawn twice, the same to the byte
    for name in figures:
        assert (written / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (written / "figures" / f"{name}.svg").read_text(encoding="utf-8").endswith("</svg>\n")
    tables = sorted(p.stem for p in (written / "tables").glob("*.csv"))
    assert tables == sorted(p.stem for p in (written / "tables").glob("*.txt"))
    assert {"overview", "segments", "boundaries", "gates", "attention", "errors", "typos", "cost"} <= set(
        tables
    )
    assert {"segment_summary", "lengths", "sentences", "halting"} <= set(tables)
    with (written / "tables" / "lengths.csv").open(encoding="utf-8", newline="") as file:
        counted = [int(row["segments"]) for row in csv.DictReader(file) if row["model"] == "act"]
    assert sum(counted) == analyses[1].segments.segments
    with (written / "tables" / "overview.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == ["char", "act"]
    assert float(rows[1]["segment length"]) == analyses[1].segments.mean


@pytest.mark.usefixtures("sketched")
def test_a_second_report_takes_the_place_of_the_first(
    analyses: list[Analysis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files() -> set[Path]:
        return {p for p in tmp_path.rglob("*") if p.is_file() and "tensorboard" not in p.parts}

    keep_chapters(monkeypatch, "segments")  # one figure of all models, and one of act alone
    assert Report(analyses[:1]).write(tmp_path) == tmp_path / "report.html"
    alone = files()
    foreign = tmp_path / "figures" / "own.png"
    foreign.touch()
    Report(analyses).write(tmp_path)
    assert files() > alone | {foreign, tmp_path / "figures" / "characters-act.png"}
    Report(analyses[:1]).write(tmp_path)
    assert files() == alone | {foreign}


def test_every_number_is_in_the_json(analyses: list[Analysis], written: Path) -> None:
    numbers = json.loads((written / "analysis.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    act = numbers["models"][1]
    assert act["segments"]["mean"] == analyses[1].segments.mean
    assert act["gates"]["profiles"][0]["overall"] == analyses[1].gates.profiles[0].overall  # type: ignore[union-attr]
    assert act["attention"]["first"] == analyses[1].attention.first  # type: ignore[union-attr]
    assert act["drawn"][0]["halting"]["scores"]
    assert act["errors"]["by_length"][0]["bleu"] >= 0


@pytest.mark.usefixtures("sketched")
def test_a_model_without_a_halting_unit_says_so(analyses: list[Analysis]) -> None:
    html, figures = Report(analyses[:1]).page()
    assert "char scores no symbols" in html
    assert not any(name.startswith(("halting", "scores", "output")) for name in figures)
    assert "output" not in tables.overview(analyses, {}).text()
    assert not any(table.key.startswith("output") for table in tables.tables(analyses))


@pytest.mark.usefixtures("sketched")
def test_a_decoder_that_cuts_shows_its_segments(
    analyses: list[Analysis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model(ACT, decoder=ACT_DECODER)
    one = analyse(replace(subject(), model=model), LINES, "text", None, SMALL)
    assert one.target_segments is not None
    assert one.readings[0].target_pieces is not None
    assert one.target_segments.segments > len(LINES)
    assert one.cost.flops is not None
    html, figures = Report([one]).page()
    assert "<h3>Segments of translations</h3>" in html
    assert {"lengths", "output-lengths"} <= set(figures)
    assert ">output segment length</th>" in html
    keep_chapters(monkeypatch)
    Report([analyses[0], replace(one, name="act-act")]).write(tmp_path)

    def rows(name: str) -> list[dict[str, str]]:
        with (tmp_path / "tables" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    char, act = rows("overview")
    assert (char["output segment length"], char["longest output"]) == ("", "")
    assert float(act["output segment length"]) == one.target_segments.mean
    assert int(act["longest output"]) == one.target_segments.longest
    counted = {int(row["characters"]): int(row["segments"]) for row in rows("output_lengths")}
    assert counted == one.target_segments.histogram
    assert [row["model"] for row in rows("output_segment_summary")] == ["act-act"]
    assert {row["segment"] for row in rows("output_segments")}


def test_one_line_of_one_character() -> None:
    one = analyse(subject(), [Line(1, "a")], "text", None, SMALL)
    assert one.segments.segments == 1
    Page(Report([one]).page()[0])


@pytest.mark.parametrize("lines", [[], [Line(1, "")], [Line(1, "  "), Line(2, "")]])
def test_nothing_to_analyse_is_refused(lines: list[Line]) -> None:
    with refuses(InputError, "text: "):
        analyse(subject(), lines, "text")


@pytest.mark.usefixtures("sketched")
def test_without_references_and_without_translations() -> None:
    lines = [replace(line, reference=None) for line in LINES]
    spoken = analyse(subject(), lines, "text", None, SMALL)
    assert spoken.scores is None
    assert spoken.attention is not None
    assert spoken.attention.targets == "translations"
    silent = analyse(subject(), lines, "text", None, replace(SMALL, translate=0))
    assert (silent.attention, silent.errors, silent.robustness) == (None, None, None)
    assert "Nothing was translated" in Report([silent]).page()[0]


def test_a_folder_without_counts_of_training_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_chapters(monkeypatch)
    bare = replace(subject(), training=TrainingText(None, None))
    html = Report([analyse(bare, LINES, "text", None, SMALL)]).page()[0]
    assert "--train F reads the text" in html


STRANGE = [
    "שלום עולם",
    "مرحبا بالعالم",
    "きる きた。日本語",
    "e\u0301a\u0301 \u0301x",
    "<b>&amp;</b> $x$ _y",
    "a\u3000b\tc",
    "\u202e|\\␣",
]


@pytest.mark.slow
def test_any_script_is_shown() -> None:
    text = " ".join(STRANGE)
    html = Report([analyse(subject(name="_<&$model$"), [Line(1, text, text)], "t<x>t", None, SMALL)]).page()[
        0
    ]
    Page(html)
    assert "<b>&amp;</b>" not in html.replace("<b>&amp;</b><b>", "")
    assert 'dir="auto"' in html
    assert "◌\u0301" in html
    assert "日" in html
    assert "<i>␣</i>" in html


@pytest.mark.slow
@pytest.mark.parametrize("fonts", [("DejaVu Sans",), ()])
def test_missing_fonts_are_no_reason_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fonts: tuple[str, ...]
) -> None:
    monkeypatch.setattr(plots, "FONTS", ("No such font", *fonts))
    keep_chapters(monkeypatch, "segments", "halting")
    lines = [Line(n, text, text) for n, text in enumerate(STRANGE, 1)]
    Report([analyse(subject(), lines, "text", None, replace(SMALL, translate=0))]).write(tmp_path)
    assert caplog.records == []


def test_gold_boundaries_of_a_lexicon_reach_the_gates() -> None:
    gold = Gold("lexicon.tsv", lexicon={"abc": (2,), "zzz": (1,)})
    one = analyse(subject(LOOKUP), [Line(1, "abc de"), Line(2, "abcabc")], "text", gold, SMALL)
    assert one.gates is not None
    assert one.gates.gold_boundaries == 1
    assert [t.reference for t in one.agreements][-2:] == ["lexicon.tsv", "lexicon.tsv, alone"]
    elsewhere = analyse(subject(LOOKUP), [Line(1, "de")], "text", gold, SMALL)
    assert elsewhere.gates is not None
    assert elsewhere.gates.gold_boundaries == 2  # of its own words


def test_gates_and_attention_do_not_wait_for_translations() -> None:
    one = analyse(subject(), LINES, "text", None, replace(SMALL, translate=2))
    assert one.gates is not None
    assert one.attention is not None
    assert one.robustness is not None
    assert (one.gates.sentences, one.attention.sentences, one.robustness.sentences) == (8, 8, 2)
    bare = [replace(line, reference=None) for line in LINES]
    attention = analyse(subject(), bare, "text", None, replace(SMALL, translate=2)).attention
    assert attention is not None
    assert (attention.sentences, attention.targets) == (2, "translations")


def test_known_translations_are_those_of_their_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "KEPT", 5)
    one = subject()
    outputs = one.model.process([line.source for line in LINES], one.model.searcher(1))
    scores, speed = score(["a"], ["b"]), Speed(10.0, 1.0, 5, 3)
    analysis = analyse(
        one,
        LINES,
        "text",
        None,
        replace(SMALL, sample=3, translate=5),
        before=Translations(outputs, scores, speed),
    )
    assert analysis.scores == scores
    assert analysis.text.translated == 5
    assert analysis.cost.translating == speed
    assert analysis.readings
    for r in analysis.readings:
        assert r.translation == outputs[r.number - 1].best


@pytest.mark.usefixtures("sketched")
def test_a_picture_of_a_part_of_a_line_says_so() -> None:
    lines = [Line(1, "ab " * 40), Line(2, "ab cd")]
    one = analyse(subject(LOOKUP), lines, "text", None, replace(SMALL, translate=0, lines=(1, 2)))
    html = Report([one]).page()[0]
    assert "line 1 (the first 80 of 121 steps)" in html
    assert "line 2." in html


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "CHUNK", 50)
    monkeypatch.setattr(study, "KEPT", 20)
    held = {}

    def lines() -> Iterator[Line]:
        for n in range(1, 1601):
            if n in (600, 1600):
                gc.collect()
                held[n] = tracemalloc.get_traced_memory()[0]
            yield Line(n, "abcdefgh"[n % 5 :] * 3)

    tracemalloc.start()
    try:
        analyse(subject(), lines(), "text", None, replace(SMALL, translate=0))
    finally:
        tracemalloc.stop()
    # A line alone takes 200 bytes, with its cut some thousands; what torch and Python keep for reuse, 10.
    assert held[1600] - held[600] < 1000 * 100


def test_the_sample_is_the_same_for_every_model(analyses: list[Analysis]) -> None:
    char, act = analyses
    assert [r.number for r in char.readings] == [r.number for r in act.readings]
    assert char.text == act.text
    again = analyse(subject(), LINES, "text", None, SMALL)
    assert Report([replace(again, cost=act.cost)]).numbers() == Report([act]).numbers()


@pytest.mark.usefixtures("sketched")
def test_figures_go_to_tensorboard_where_it_is_installed(
    analyses: list[Analysis], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = mock.MagicMock()
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", mock.Mock(SummaryWriter=board))
    keep_chapters(monkeypatch, "segments", "gates")
    Report(analyses[:1]).write(tmp_path)
    board.assert_called_once_with(tmp_path / "tensorboard")
    sent = {call.args[0] for call in board().__enter__().add_figure.call_args_list}
    assert sent == {path.stem for path in (tmp_path / "figures").glob("*.png")}


@pytest.mark.soak
def test_a_test_set_is_analysed_in_less_than_a_minute(tmp_path: Path) -> None:
    """The demo's sizes, 6,750 sentences of 97 characters as in IWSLT14, all that needs no translation.

    The sample of 500 takes most of the minute: here it is a fifth of that, on cores that may be busy.
    """
    torch.manual_seed(1)
    act = {"type": "act", "embedding_dim": 32, "act_size": 64, "output_dim": 64, "halting_bias": 0.0}
    decoder = {"embedding_dim": 32, "hidden_size": 128, "attention_size": 64}
    config = make_config(act, {"hidden_size": 64}, decoder)
    letters = CharVocabulary([*"abcdefghijklmnopqrstuvwxyz ."])
    model = Translator.build(config, letters, letters).eval()
    rng = random.Random(1)
    words = ["".join(rng.choices("enirstadhu", k=rng.randint(2, 10))) for _ in range(5000)]
    texts = [" ".join(rng.choices(words, k=14)) + " ." for _ in range(6750)]
    began = time.process_time()
    lines = (Line(n, text, text) for n, text in enumerate(texts, 1))
    settings = AnalysisSettings(sample=100, translate=0)
    one = analyse(Subject("act", tmp_path, model, TRAINING), lines, "text", None, settings)
    Report([one]).write(tmp_path)
    assert time.process_time() - began < 60
    assert one.text.sentences == 6750
    assert one.text.sample == 100
