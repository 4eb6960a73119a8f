"""`caesura reproduce --draw`: tables, figures and the appendix from kept results alone."""

import csv
import json
import re
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from cli.program import caesura, refusal
from experiments.recipes import rows, run
from wording import wording

from caesura.analysis.places import KeptCuts
from caesura.evaluation.bootstrap import UnitCounts
from caesura.experiments.recipe import FILE
from caesura.experiments.results import METRICS_BYTES

ROOT = Path(__file__).parents[2]
READER = "reader: {type: bigru, embedding_dim: 8, size: 8}"
RECIPE = f"""\
title: Numbers
measures: [details, cuts, robust, inside]
claims:
  - {{claim: Learned cuts are better, above: [main-cif], below: [main-fixed]}}
tables:
  main:
    title: Regular and learned cuts
    seeds: [1, 2]
    settings: [training.updates=12, training.validation_freq=100]
    rows:
      fixed:
        config: char.yaml
        series: fixed
        settings: ["model.segmenter={{{READER}, cutter: {{type: fixed, k: 2}}, pooling: mean}}"]
      cif:
        config: char.yaml
        title: CIF
        series: CIF
        settings: ["model.segmenter={{{READER}, cutter: cif, pooling: weighted, rate: {{target: 3.0}}}}"]
"""


def kept(out: Path) -> dict[str, dict[str, Any]]:
    """The last line of each kept log."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8").splitlines()[-1])
        for path in sorted((out / "metrics").glob("*.jsonl"))
    }


@pytest.mark.slow
@pytest.mark.usefixtures("forked", "drawn")
def test_all_that_was_measured_is_drawn_without_models(recipe: Path) -> None:
    (recipe / FILE).write_text(RECIPE, encoding="utf-8")
    gold = recipe / "gold.tsv"
    gold.write_text("einszwei\teins zwei\ndreivier\tdrei vier\n", encoding="utf-8")
    out = recipe.parent / "out"
    done = run(recipe, "--gold", gold, "--parallel", "2", "--seeds", "1,2")
    assert (done.status, done.err) == (0, "")
    results = kept(out)
    assert [*results] == ["main-cif-1", "main-cif-2", "main-fixed-1", "main-fixed-2"]
    for name, result in results.items():
        measured = result["measured"]
        assert [*measured] == ["test", "cuts", "robust", "inside"]
        assert measured["cuts"]["boundaries"]["gold.tsv, alone"]["chance"] > 0
        assert measured["cuts"]["surprisal"]["everywhere"] > 0
        assert (measured["cuts"]["fidelity"] is None) == ("fixed" in name)
        units = UnitCounts.unpacked(measured["test"]["units"]["packed"])
        assert units.bleu == pytest.approx(measured["test"]["scores"]["bleu"])
        assert KeptCuts.read(measured["cuts"]["cuts"]).lines == 12
        assert (out / "metrics" / f"{name}.jsonl").stat().st_size < METRICS_BYTES
    assert "packed" not in (out / "table.json").read_text(encoding="utf-8")
    for path in out.glob("main-*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = caesura("reproduce", recipe, "--draw", "--out", out)
    assert (done.status, done.err) == (0, "")
    names = [Path(line).name for line in done.lines]
    figures = ["curves.png", "seconds.png", "places.png", "moves.png"]  # by_length.png needs a line
    assert names == ["table.json", "table.md", "table.csv", "claims.md", "appendix.md", "pairs.csv", *figures]
    check_appendix(out)
    text = (out / "table.md").read_text(encoding="utf-8")
    assert re.search(r"\| train \| 60 \|", text), "the text is not there, but its counts were kept"
    assert {f"]({name})" in text for name in figures} == {True}
    check_damage(recipe, out)


def check_appendix(out: Path) -> None:
    text = (out / "appendix.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## Regular and learned cuts: (.*)$", text, re.M)
    assert titles[:5] == [
        "Against fixed",
        "Do seeds cut alike?",
        "BLEU with typos",
        "chrF2 with typos",
        "BLEU by beam",
    ]
    assert titles[10:] == [
        "The most frequent segments of each length (the paper's Table 5)",
        "Characters most often within longer segments",
        "Lines of dev (the paper's Tables 3, 6 and 7)",
        "Mean gates around spaces and punctuation (the paper's Figures 3 and 4)",
        "Attention (the paper's Appendix C)",
    ]
    claims = (out / "claims.md").read_text(encoding="utf-8")
    assert re.search(r"^\| Learned cuts are better \|  \| .* CIF against .* fixed \| [+-]", claims, re.M)
    assert re.search(r"^\| fixed \| 1 \| 1\.000 \| ", text, re.M), "regular cuts do not depend on the seed"
    bleu: dict[str, list[float]] = {}
    for row in rows(out.parent / "numbers"):
        bleu.setdefault(row["system"], []).append(float(row["bleu"]))
    with (out / "pairs.csv").open(encoding="utf-8", newline="") as file:
        [pair] = csv.DictReader(file)
    assert (pair["table"], pair["system"], pair["other"]) == ("main", "CIF", "fixed")
    assert float(pair["BLEU mean"]) == pytest.approx(fmean(bleu["cif"]) - fmean(bleu["fixed"]))
    assert float(pair["BLEU low"]) <= float(pair["BLEU mean"]) <= float(pair["BLEU high"])


def check_damage(recipe: Path, out: Path) -> None:
    path = out / "metrics" / "main-cif-2.jsonl"
    *way, end = path.read_text(encoding="utf-8").splitlines()
    broken = json.loads(end)
    broken["measured"]["test"]["units"]["packed"] = "AAAA"
    path.write_text("\n".join([*way, json.dumps(broken)]) + "\n", encoding="utf-8")
    message = refusal(caesura("reproduce", recipe, "--draw", "--out", out))
    assert message.startswith("metrics/main-cif-2.jsonl: not packed counts")


def test_what_earlier_results_lack_is_left_out(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "results" / "reading", tmp_path / "out")
    (tmp_path / "out" / "seconds.png").unlink(missing_ok=True)
    before = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    done = caesura("reproduce", ROOT / "recipes" / "reading", "--draw", "--out", tmp_path / "out")
    assert done.status == 0, done.err
    names = [Path(line).name for line in done.lines]
    assert {"by_length.png", "seconds.png", "places.png", "moves.png"} <= {*names}
    assert not {"appendix.md", "pairs.csv"} & {*names}
    after = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")

    def tables(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith(("|", "- "))]

    assert tables(after) == tables(before)


def test_where_nothing_is_kept_there_is_nothing_to_draw(recipe: Path) -> None:
    out = recipe.parent / "out"
    message = wording(refusal(caesura("reproduce", recipe, "--draw", "--out", out)))
    assert message.startswith(f"{out}/metrics: ")
    assert "--out" in wording(refusal(caesura("reproduce", recipe, "--draw")))
    assert wording(refusal(run(recipe, "--gold", recipe / FILE))).startswith(f"--gold {recipe / FILE}: ")
    assert not out.exists()
