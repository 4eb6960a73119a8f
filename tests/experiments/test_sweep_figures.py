"""The figures of a sweep show every run, whatever is missing of it."""

import math
from dataclasses import replace

import matplotlib.colors
import pytest
from experiments.made import BIAS, TAU, baseline, grid, result, sweep

from caesura.analysis.plots import svg_of
from caesura.experiments.sweep_figures import (
    figures,
    length_curves,
    live_curves,
    loss_and_length,
    loss_curves,
    score_and_length,
    start_and_end,
)
from caesura.experiments.sweep_looks import DASHES, looks

pytestmark = pytest.mark.usefixtures("drawn")

TAUS = [-0.5, 0.0, 0.01, 0.03, 0.1, 0.3, 1.0]


def lines(figure):
    """Those of runs: not the one that marks single characters, which is first in nothing's way."""
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) > 1]
    return [line for line in curves if line.get_transform() == figure.axes[0].transData]


def texts(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_a_grid_of_28_has_28_lines_and_both_baselines():
    made = sweep(
        [*grid(TAUS, [-2.0, 0.0, 1.0, 3.0]), baseline("char", 1.0, 20.0), baseline("bpe", 4.1, 24.0)]
    )
    drawn = figures(made)
    assert [*drawn] == ["trajectories", "start-and-end", "bleu", "gradient", "loss-and-length", "loss"]
    assert len(lines(drawn["trajectories"])) == 30
    assert len(lines(drawn["gradient"])) == len(lines(drawn["loss-and-length"])) == 28
    assert len(lines(drawn["loss"])) == 30
    assert drawn["trajectories"].axes[0].get_yscale() == "log"
    assert len(drawn["bleu"].axes[0].collections) == 30
    assert len(drawn["start-and-end"].axes[0].collections) == 28
    labels = [text.get_text() for text in drawn["bleu"].axes[0].texts]
    assert labels == ["char", "bpe"]
    names = texts(drawn["trajectories"])
    assert names[: len(TAUS) + 1] == ["tau", "-0.5", "0", "0.01", "0.03", "0.1", "0.3", "1"]
    assert names[len(TAUS) + 1 : len(TAUS) + 7] == [" ", "b_h", "-2", "0", "1", "3"]
    for figure in drawn.values():
        assert "</svg>" in svg_of(figure)


def test_colours_are_in_the_order_of_numbers_and_tell_themselves_apart():
    seen = looks(sweep(grid([1.0, -0.5, 0.0, 0.03], [1.0])))
    assert [*seen.colours] == ["-0.5", "0", "0.03", "1"]
    light = [matplotlib.colors.rgb_to_hsv(matplotlib.colors.to_rgb(c))[2] for c in seen.colours.values()]
    assert light == sorted(light)  # in grey as well
    assert len(set(light)) == 4


def test_words_have_colours_too_and_a_run_without_a_value_is_grey():
    key = "training.normalization"
    runs = [
        result("a", settings={key: "symbols"}),
        result("b", settings={key: "sentences"}),
        result("c", settings={}),
    ]
    made = sweep(runs, [key])
    seen = looks(made)
    assert [*seen.colours] == ["symbols", "sentences"]
    assert len({seen.colour(made, run) for run in runs}) == 3


def test_runs_of_a_list_go_by_their_names_where_a_value_is_a_section():
    key, names = "model.segmenter", ["cif 2", "cif 4 stein", *(f"way {letter}" for letter in "abcdefghij")]
    runs = [result(name, settings={key: {"type": "parts", "nth": i}}) for i, name in enumerate(names)]
    made = sweep(runs, [key])
    seen = looks(made)
    assert [*seen.colours] == ["cif", *names[2:]]
    pairs = [(seen.colour(made, run), seen.place(made, run)) for run in made.runs]
    assert pairs[0] == pairs[1]
    assert len({*pairs}) == 11
    for figure in (length_curves(made), score_and_length(made)):
        assert texts(figure)[:11] == [*seen.colours]


def test_yes_and_no_are_words_and_not_numbers():
    key = "model.segmenter.learn_halting"
    words, marks = (
        looks(sweep([result("a", settings={key: v}) for v in two], [key])) for two in ("ab", (True, False))
    )
    assert [*marks.colours] == ["true", "false"]
    assert [*marks.colours.values()] == [*words.colours.values()]


def test_the_curves_are_the_values():
    run = result()
    line, *_ = lines(length_curves(sweep([run])))
    assert list(line.get_xdata()) == run.curve["sentences"]
    assert list(line.get_ydata()) == run.curve["segment_length"]
    marks = [m for m in length_curves(sweep([run])).axes[0].lines if m.get_marker() == "o"]
    assert [(list(m.get_xdata()), list(m.get_ydata())) for m in marks] == [([0], [2.0]), ([24000], [1.1])]
    share, *_ = lines(live_curves(sweep([run])))
    assert list(share.get_ydata()) == run.curve["live"]


def test_dots_stand_at_the_end_and_lead_to_the_best():
    slow, quick = result(), replace(result("x"), milliseconds=2.5)
    axes = score_and_length(sweep([slow, quick])).axes[0]
    assert [tuple(dot.get_offsets()[0]) for dot in axes.collections] == [(1.1, 8.0)] * 2
    large, small = (dot.get_sizes()[0] for dot in axes.collections)
    assert large == pytest.approx(4 * small)  # the area is the time
    assert (list(axes.lines[0].get_xdata()), list(axes.lines[0].get_ydata())) == ([1.1, 1.2], [8.0, 9.0])


def test_the_line_to_the_best_is_in_the_legend_where_there_is_one():
    assert "line to the best validation" in texts(score_and_length(sweep([result()])))
    others = [result(best=3), baseline("char", 1.0, 20.0), bare(bleu=[None, 1.0])]
    lines_of_others = score_and_length(sweep([*others, bare(bleu=[None, 2.0])]))
    assert "line to the best validation" not in texts(lines_of_others)


def test_no_two_values_of_a_key_look_alike():
    made = sweep(grid([0.0], [-2.0, 0.0, 1.0, 3.0, 20.0, 30.0]))
    assert len({DASHES[place % len(DASHES)] for place in looks(made).places.values()}) == 6
    dots = start_and_end(made).axes[0].collections
    assert len({dot.get_paths()[0].vertices.tobytes() for dot in dots}) == 6


SIZE = "model.segmenter.act_size"


def test_what_runs_have_besides_is_told_while_there_are_dashes_for_it():
    keys, usual = [TAU, BIAS, SIZE], {BIAS: 1.0, SIZE: 50}
    others = [{}, {BIAS: 3.0}, {SIZE: 25}, {SIZE: 100}, {BIAS: 3.0, SIZE: 25}]
    runs = [
        result(f"{tau}{other}", settings={TAU: tau} | usual | other) for tau in (0.0, 1.0) for other in others
    ]
    few = sweep(runs, keys)
    kinds = ["as most: b_h=1 act_size=50", "b_h=3", "act_size=25", "act_size=100", "b_h=3 act_size=25"]
    assert texts(length_curves(few))[3:10] == [" ", "otherwise", *kinds]
    assert [looks(few).place(few, run) for run in runs] == [0, 1, 2, 3, 4] * 2
    more = [result(str(size), settings={TAU: 0.0} | usual | {SIZE: size}) for size in (10, 20)]
    many = sweep([*runs, *more], keys)
    assert texts(length_curves(many))[3:10] == [" ", "b_h", "1", "3", " ", "not shown:", "act_size"]
    assert [looks(many).place(many, run) for run in runs] == [0, 1, 0, 0, 1] * 2


def test_what_most_have_is_said_where_that_is_short():
    keys, usual = [TAU, BIAS, SIZE, "training.normalization"], {BIAS: 1.0, SIZE: 50}
    settings = [{}, {}, {BIAS: 3.0}, {SIZE: 25}, {"training.normalization": "sentences"}]
    runs = [
        result(str(i), settings={TAU: 0.0, "training.normalization": "symbols"} | usual | other)
        for i, other in enumerate(settings)
    ]
    assert [*looks(sweep(runs, keys)).places] == [
        "as most",
        "b_h=3",
        "act_size=25",
        "normalization=sentences",
    ]


def test_a_key_that_does_not_vary_takes_no_dashes_from_one_that_does():
    runs = [result(str(size), settings={TAU: 0.0, BIAS: 1.0, SIZE: size}) for size in (50, 25)]
    seen = looks(sweep(runs, [TAU, BIAS, SIZE]))
    assert (seen.second, [*seen.places], seen.hidden) == ("act_size", ["25", "50"], [])


def test_the_times_of_dots_say_that_they_were_shared():
    shared, alone = sweep([result()]), sweep([result(parallel=1)])
    assert texts(score_and_length(shared))[-2:] == ["10 ms per update", "(up to 4 side by side)"]
    assert texts(score_and_length(alone))[-1] == "10 ms per update"


def test_dots_of_many_runs_are_smaller():
    few, many = (score_and_length(sweep(grid(TAUS[:n], [0.0, 1.0, 3.0]))).axes[0].collections for n in (4, 5))
    assert max(dot.get_sizes()[0] for dot in few) == pytest.approx(
        2 * max(dot.get_sizes()[0] for dot in many)
    )


def test_what_training_told_is_drawn_from_the_start_on_a_scale_that_shows_it():
    training = {"sentences": [64, 192, 448], "segment_length": [1.9, 1.7, 1.6], "live": [0.4, 0.3, 0.2]}
    made = sweep([result(training=training), result("x")])
    for draw, field in ((length_curves, "segment_length"), (live_curves, "live")):
        figure = draw(made)
        line, validated = lines(figure)
        assert list(line.get_xdata()) == [0, 64, 192, 448]
        assert list(line.get_ydata()) == [made.runs[0].first(field), *training[field]]
        assert list(validated.get_ydata()) == made.runs[1].curve[field]
        assert figure.axes[0].get_xscale() == "symlog"
        figure.draw_without_rendering()
        ticks = [label.get_text() for label in figure.axes[0].get_xticklabels()]
        assert ticks == ["0", "100", "1k", "10k"]


SEEN = {
    "sentences": [100, 900, 4000, 20000, 30000],
    "segment_length": [2.0, 1.9, 5.0, 30.0, 29.0],
    "cross_entropy": [4.4, 2.0, 1.2, 1.3, 1.1],
}


def test_the_loss_is_drawn_from_where_there_is_something_to_see():
    char = baseline("char", 1.0, 20.0)
    figure = loss_curves(sweep([result(training=SEEN), char]))
    axes = figure.axes[0]
    run, beside = lines(figure)
    assert [*zip(*run.get_data(), strict=True)] == [
        *zip(SEEN["sentences"], SEEN["cross_entropy"], strict=True)
    ]
    assert [*beside.get_ydata()] == char.training["cross_entropy"]
    assert 100 < axes.get_xlim()[0] < 900  # a fiftieth of the sentences
    low, high = axes.get_ylim()
    assert low < 1.0 < 2.0 < high < 4.4
    assert [text.get_text() for text in axes.texts] == ["char"]


def test_the_way_through_lengths_and_losses_ends_in_a_dot_beside_those_who_do_not_cut():
    figure = loss_and_length(sweep([result(training=SEEN), baseline("char", 1.0, 20.0)]))
    (way,) = lines(figure)
    assert [*zip(*way.get_data(), strict=True)] == [(1.9, 2.0), (5.0, 1.2), (30.0, 1.3), (29.0, 1.1)]
    ends = [line for line in figure.axes[0].lines if line.get_marker() == "o"]
    assert [(*end.get_xdata(), *end.get_ydata()) for end in ends] == [(29.0, 1.1)]
    assert [tuple(dot.get_offsets()[0]) for dot in figure.axes[0].collections] == [(1.0, 1.0)]
    (name,) = figure.axes[0].texts
    assert (name.get_text(), name.xyann[1] < 0) == ("char", True)  # below its dot, where nobody ends


def test_losses_of_other_target_symbols_are_left_out_and_that_is_said():
    bpe = replace(baseline("bpe", 4.0, 20.0), settings={"data.trg.level": "bpe", "data.trg.voc_limit": 2000})
    small = replace(bpe, name="small seed=1", settings=bpe.settings | {"data.trg.voc_limit": 500})
    runs = [bpe, small, *(result(training=SEEN, seed=seed) for seed in (1, 2)), baseline("char", 1.0, 20.0)]
    for draw, count in ((loss_curves, 3), (loss_and_length, 2)):
        figure = draw(sweep(runs))
        assert len(lines(figure)) == count
        assert [text.get_text() for text in figure.axes[0].texts] == ["char"]
        assert texts(figure)[-2:] == ["without bpe, small:", "other target symbols"]
    words = [
        replace(run, settings=run.settings | {"data.trg.level": "word"}) for run in grid([0.0, 1.0], [1.0])
    ]
    mixed = loss_curves(sweep([bpe, result(training=SEEN), *words]))
    assert len(lines(mixed)) == 1
    assert texts(mixed)[-2] == "without bpe, 2 runs:"
    assert not any("other" in text for text in texts(loss_curves(sweep(runs[2:]))))


def test_a_grid_that_did_not_keep_its_losses_has_no_figures_of_them():
    old = result(training={key: SEEN[key] for key in ("sentences", "segment_length")})
    names = ["trajectories", "start-and-end", "bleu", "gradient"]
    assert [*figures(sweep([old, baseline("char", 1.0, 20.0)]))] == names
    both = figures(sweep([old, result("new", training=SEEN)]))
    assert [len(lines(both[name])) for name in ("loss", "loss-and-length", "trajectories")] == [1, 1, 2]


def test_runs_stand_side_by_side_above_their_tau_from_start_to_end():
    made = sweep(grid([0.0, 1.0], [-2.0, 1.0], seeds=2))
    axes = start_and_end(made).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "1"]
    places = [tuple(dot.get_offsets()[0]) for dot in axes.collections]
    assert len({x for x, _ in places}) == len(places) == 8
    assert [round(x) for x, _ in sorted(places)] == [0] * 4 + [1] * 4
    assert {y for _, y in places} == {run.last("segment_length") for run in made.runs}
    starts = [line for line in axes.lines if line.get_marker() == "o"]
    assert {line.get_ydata()[0] for line in starts} == {8.5, 2.0}


def test_start_and_end_are_both_in_the_legend():
    one, several = sweep(grid([0.0, 1.0], [1.0])), sweep(grid([0.0, 1.0], [-2.0, 1.0]))
    assert texts(start_and_end(one)) == ["start", "end"]
    assert texts(start_and_end(several)) == ["b_h", "-2", "1", " ", "start", "end: marker as above"]


def test_a_run_that_ends_where_it_began_has_a_ring_around_its_dot_and_no_arrow():
    still, moved = bare(segment_length=[2.0, 2.02]), bare(segment_length=[2.0, 30.0])
    axes = start_and_end(sweep([still, moved], [])).axes[0]
    assert [text.xy[1] for text in axes.texts] == [30.0]  # arrows are annotations
    rings = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert (len(rings), len(axes.collections)) == (2, 2)
    for ring, dot in zip(rings, axes.collections, strict=True):
        assert ring.get_markersize() ** 2 > 2 * dot.get_sizes()[0]


def test_a_baseline_that_does_not_cut_the_output_is_a_line_at_its_score():
    columns = {"output_segment_length": [1.1, 9.0], "output_live": [0.1, 0.8], "bleu": [None, 1.0]}
    axes = figures(sweep([bare(**columns), baseline("char", 1.0, 20.0)]))["output-bleu"].axes[0]
    assert [text.get_text() for text in axes.texts] == ["char"]
    assert [20.0, 20.0] in [list(line.get_ydata()) for line in axes.lines]


def test_what_all_names_begin_with_is_left_out():
    runs = [replace(run, config="x-y-act") for run in grid([0.0], [1.0])]
    made = sweep([*runs, baseline("x-y-char", 1.0, 20.0), baseline("x-bpe", 3.0, 20.0)])
    axes = figures(made)["bleu"].axes[0]
    assert [text.get_text() for text in axes.texts] == ["y-char", "bpe"]


def bare(**columns):
    curve = {"sentences": [0, 8000], "segment_length": [2.0, 1.5], **columns}
    return result(curve=curve, best=None, milliseconds=None, boundaries={}, coordination={}, test=None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runs", "over"),
    [
        ([result()], []),
        ([bare()], [TAU]),
        ([bare(bleu=[None, None])], [TAU, BIAS]),
        ([bare(bleu=[None, math.nan], live=[None, None])], ["training.batch_size"]),
        ([bare(segment_length=[0.0, 0.0], bleu=[None, 0.0])], [TAU]),
        ([bare(segment_length=[1.0, 1.0], bleu=[None, 0.0]), baseline("char", 1.0, 0.0)], [TAU]),
        ([baseline("char", 1.0, 20.0)], [TAU, BIAS]),
        ([result(curve={"sentences": [0], "segment_length": [2.0]}, best=None), bare()], []),
        ([result(curve={}, best=None, status="failed"), bare()], [TAU]),
    ],
)
def test_whatever_is_missing_something_is_drawn(runs, over):
    drawn = figures(sweep(runs, over))
    assert {"trajectories", "start-and-end", "bleu"} <= {*drawn}
    for figure in drawn.values():
        figure.draw_without_rendering()


def test_nothing_at_all_draws_nothing():
    assert figures(sweep([])) == {}
    assert figures(sweep([result(curve={}, best=None)])) == {}


def test_a_decoder_that_segments_has_figures_of_its_output():
    columns = {"output_segment_length": [1.1, 9.0], "output_live": [0.1, 0.8], "bleu": [None, 1.0]}
    drawn = figures(sweep([bare(**columns)]))
    assert {"output-trajectories", "output-start-and-end", "output-bleu", "output-gradient"} <= {*drawn}
    assert [tuple(dot.get_offsets()[0]) for dot in drawn["output-bleu"].axes[0].collections] == [(9.0, 1.0)]
    assert drawn["output-bleu"].axes[0].get_xlabel() == "characters in an output segment"
    assert list(lines(drawn["output-trajectories"])[0].get_ydata()) == [1.1, 9.0]


def test_what_ends_of_output_lines_are_of_is_said():
    curve = {"sentences": [64, 192], "output_segment_length": [1.9, 1.7]}
    columns = {"output_segment_length": [1.1, 9.0], "output_live": [0.1, 0.8]}
    labels = texts(length_curves(sweep([replace(bare(**columns), training=curve)]), "output_segment_length"))
    assert labels[-2:] == ["start (dev references)", "end (translations)"]


def test_a_source_that_nobody_segments_has_no_figures():
    output = {"output_segment_length": [1.1, 9.0], "output_live": [0.1, 0.8], "bleu": [None, 1.0]}
    still = bare(segment_length=[1.0, 1.0], **output)
    beside = baseline("act", 2.0, 3.0)
    names = {"output-trajectories", "output-start-and-end", "output-bleu", "output-gradient"}
    assert {*figures(sweep([still, still, beside]))} == names
    halting = bare(segment_length=[1.0, 1.0], live=[0.0, 0.0], **output)
    assert {*figures(sweep([still, halting]))} == names | {
        "trajectories",
        "start-and-end",
        "bleu",
        "gradient",
    }


def test_names_are_shown_as_they_are():
    made = sweep([result("$x_1$", settings={"a.$k_": "$v$ <&"}), baseline("_$b$", 1.0, 2.0)], ["a.$k_"])
    for figure in figures(made).values():
        assert "$v$ &lt;&amp;" in svg_of(figure)
