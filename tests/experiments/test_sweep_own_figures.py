"""What segmenters measure of their cuts is kept in a sweep's results, and shown without the models."""

from dataclasses import replace

from experiments.made import result, sweep

from caesura.experiments.sweep_results import Shown, load, merge, save
from caesura.experiments.sweep_tables import brief_table, markdown, runs_table

OWN = {
    "live": Shown("live", "of characters", "share that learns; all else is still", ".1%", headline=True),
    "spill": Shown("spill", "of a boundary character", "what it gives to the next segment", ".3f"),
}


def test_figures_that_segmenters_name_are_kept_and_shown_without_the_models(tmp_path):
    cif = result("cif", curve=result().curve | {"spill": [0.5, 0.4, 0.3, 0.25]})
    save(replace(sweep([cif, result("act")]), figures=OWN), tmp_path / "x.json")
    read = load(tmp_path / "x.json")
    assert read.figures == read.shown == OWN
    table = runs_table(read)
    rows = [dict(zip([c.name for c in table.columns], row, strict=True)) for row in table.rows]
    assert [(row["spill: start"], row["spill: end"]) for row in rows] == [(0.5, 0.25), (None, None)]
    assert [(row["live: start"], row["live: end"]) for row in rows] == [(0.5, 0.1)] * 2
    text = markdown(read)
    assert "**Figures of the segmenters**" in text
    assert "| cif seed=1 | 50.00% | 10.00% | 0.5000 | 0.2500 |" in text
    assert "Spill: what it gives to the next segment (of a boundary character)." in text
    _, heads, _, legend = brief_table(read)
    assert "live" in heads
    assert "spill" not in heads  # no headline
    assert "live: share that learns, at the end" in legend
    other = replace(sweep([result("tau=0", digest="1")]), figures={})
    assert merge([other, read]).figures == OWN


def test_a_figure_that_no_run_has_is_not_shown():
    made = replace(sweep([result(curve={"segment_length": [1.0, 2.0]})]), figures=OWN)
    assert made.shown == {}


def test_results_of_an_earlier_version_are_read_under_the_names_of_today(tmp_path):
    run = result(training={"sentences": [1], "live": [0.5], "output_live": [0.25]})
    both = replace(run, curve=run.curve | {"output_live": [0.1, 0.2, 0.3, 0.4]})
    save(sweep([both]), tmp_path / "new.json")
    text = (tmp_path / "new.json").read_text()
    old = text.replace('"output_live"', '"output_gradient_share"').replace('"live"', '"gradient_share"')
    (tmp_path / "old.json").write_text(old.replace(',\n "figures": {}', ""))
    assert old != text
    read = load(tmp_path / "old.json")
    assert read == load(tmp_path / "new.json")
    assert read.shown["live"].heading == "live"
