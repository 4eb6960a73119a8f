"""A sweep has exactly the runs that were asked for, each under its own name; mistakes are found first."""

import json
import math
import re
from pathlib import Path

import pytest
from cli.program import write_config, write_corpus
from hypothesis import example, given
from hypothesis import strategies as st
from wording import refuses

from caesura.errors import InputError
from caesura.experiments.sweep_grid import (
    Plan,
    Point,
    cross,
    parse_over,
    points,
    read_rows,
    short_name,
    shown,
)

TAU, BIAS = "model.segmenter.tau", "model.segmenter.halting_bias"
CUT = "model.segmenter.cut_after"


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, train=5, dev=2)
    write_config(folder / "char.yaml", "char")
    return write_config(folder / "act.yaml", "act")


def grid(config: Path, *over: str, **more) -> list[Point]:
    return points(Plan(config, cross([parse_over(text) for text in over]), **more))


def test_a_grid_is_crossed_and_named(config):
    members = grid(config, f"{TAU}=-0.5,0,3e-2", f"{BIAS}=-2,1", seeds=[1, 2])
    assert len(members) == len({point.folder for point in members}) == 12
    assert members[0].name == "tau=-0.5 b_h=-2 seed=1"
    assert members[-1].folder == "tau=0.03__b_h=1__seed=2"
    last = members[-1].config
    assert last.model.segmenter.tau == 0.03
    assert last.model.segmenter.model_extra["halting_bias"] == 1.0
    assert last.training.seed == members[-1].seed == 2
    assert members[-1].changes == (f"{TAU}=3e-2", f"{BIAS}=1", "training.seed=2")
    assert members[-1].values == {TAU: 0.03, BIAS: 1.0}


PARTS = (
    "model.segmenter={reader: {type: gru, embedding_dim: 8, size: 6}, cutter: act, pooling: weighted, tau: 0}"
)


def test_parts_are_named_by_their_types_and_what_is_not_as_by_default(config):
    cutters = "model.segmenter.cutter=act,{type: act, epsilon: 0.25},{type: act, epsilon: 0.01},every"
    with refuses(InputError, "cutter=act seed=1: "):
        grid(config, cutters, common=[PARTS])
    cutters = "model.segmenter.cutter={type: act, epsilon: 0.25},{type: fixed, k: 2.5},every"
    members = grid(config, cutters, "model.segmenter.reader.dropout=0,0.5", common=[PARTS])
    names = "act(epsilon=0.25)", "fixed(k=2.5)", "every"
    assert [point.name for point in members] == [
        f"cutter={name} reader.dropout={share} seed=1" for name in names for share in ("0", "0.5")
    ]
    assert len({point.folder for point in members}) == 6
    rates = grid(
        config,
        "model.segmenter.rate.target=2,3.5",
        common=[PARTS, "model.segmenter.cutter=cif"],
    )
    assert [point.name for point in rates] == ["rate.target=2 seed=1", "rate.target=3.5 seed=1"]


def test_a_value_that_cannot_be_seen_is_quoted(config):
    values = ["", " ", " f", "f ", "a b", "\t", "\xa0", '"', '" "']
    members = grid(config, f"model.segmenter.cut_after={','.join(map(json.dumps, values))}")
    assert [point.config.model.segmenter.options["cut_after"] for point in members] == values
    names = '""', '" "', '" f"', '"f "', "a b", r'"\t"', r'"\u00a0"', r'"\""', r'"\" \""'
    assert [point.name for point in members] == [f"cut_after={name} seed=1" for name in names]


def test_folders_of_blanks_can_be_told_apart_by_eye(config):
    members = grid(config, f'{CUT}=""," ","\\t",e," e"', f"{TAU}=0")
    marks = [point.folder.rpartition("-") for point in members]
    assert [name for name, _, _ in marks] == [
        "cut_after=nothing-tau=0-seed=1", "cut_after=space-tau=0-seed=1", "cut_after=tab-tau=0-seed=1",
        "", "cut_after=-e-tau=0-seed=1",
    ]  # fmt: skip
    assert members[3].folder == "cut_after=e__tau=0__seed=1"
    named = [grid(config, f"{CUT}={value}")[0] for value in ('""', "nothing", '" "', "space")]
    assert len({point.folder for point in named}) == 4


def test_a_value_in_quotes_may_have_commas_and_brackets():
    texts = ['" ,."', "'[,'", '"\\","', "plain", "it's", "don't", "[1,2]", "''"]
    assert [setting.text for setting in parse_over(f"name={', '.join(texts)}")] == texts


@pytest.mark.parametrize("values", ["", " ", "a, ", "a,", ",a", "a,,b"])  # what a shell leaves of quotes
def test_how_a_blank_is_given_is_said(values):
    with refuses(InputError, f"--over {CUT}={values}: "):
        parse_over(f"{CUT}={values}")


def test_text_that_is_none_gets_the_remedy_of_where_it_was_written(config, tmp_path):
    with refuses(InputError, f"--over {CUT}=3: ", f"'{CUT}=\"3\"'"):
        grid(config, f"{CUT}=3")
    listed = write_list(tmp_path, f"- settings: {{{CUT}: }}\n")
    with refuses(InputError, f"{listed}:1: {CUT}: "):
        points(Plan(config, read_rows(listed)))


@pytest.mark.parametrize("text", ["0:1", "1e-3:1:log"])
def test_a_range_is_for_a_search(config, text):
    with refuses(InputError, f"--over {TAU}={text}: ", "--search"):
        grid(config, f"{TAU}={text}")
    assert grid(config, f"{CUT}={text}")[0].config.model.segmenter.options["cut_after"] == text
    with pytest.raises(InputError) as refused:
        grid(config, f"{CUT}={text}", f"{TAU}=x")
    assert "--search" not in str(refused.value)
    with pytest.raises(InputError) as refused:
        grid(config, f"{BIAS}={text}", f"{TAU}={text}")
    assert str(refused.value).count("--search") == 1


def test_baselines_stand_beside_and_share_what_all_have(config):
    char = config.with_name("char.yaml")
    members = grid(config, f"{TAU}=0,1", beside=[char], seeds=[3, 4], common=["training.batch_size=7"])
    assert [point.name for point in members if point.beside] == ["char seed=3", "char seed=4"]
    assert {point.config.training.batch_size for point in members} == {7}
    assert members[-1].path == char


def test_a_setting_that_a_baseline_cannot_have_names_it(config):
    char = config.with_name("char.yaml")
    with refuses(InputError, f"{char}: --set model.segmenter.act_size=9: ", "--over KEY=VALUE"):
        grid(config, beside=[char], common=["model.segmenter.act_size=9"])
    members = grid(config, "model.segmenter.act_size=9", beside=[char])
    assert [point.beside for point in members] == [False, True]


def test_the_text_of_all_is_taken_from_a_folder(config, tmp_path):
    with refuses(InputError, f"--data {tmp_path}: ", "train.de"):
        grid(config, data=tmp_path)
    for name in ("train.de", "train.en.xz", "dev.de", "dev.en", "test.de.gz", "test.en"):
        (tmp_path / name).touch()
    for point in grid(config, f"{TAU}=1", beside=[config.with_name("char.yaml")], data=tmp_path):
        assert point.config.data.train.src == tmp_path / "train.de"
        assert point.config.data.train.trg == tmp_path / "train.en.xz"
        assert point.config.data.test.src == tmp_path / "test.de.gz"
        assert f"data.dev.trg={tmp_path}/dev.en" in point.changes


def test_without_anything_to_vary_there_is_one_run(config):
    assert [point.name for point in grid(config)] == ["act seed=1"]


@given(
    st.lists(
        st.lists(st.floats(-1e3, 1e3, allow_subnormal=False), min_size=1, max_size=4, unique=True),
        min_size=1,
        max_size=4,
    )
)
def test_every_combination_once(dimensions):
    over = [f"k{i}=" + ",".join(map(repr, values)) for i, values in enumerate(dimensions)]
    rows = [tuple(setting.text for setting in row) for _, row in cross([parse_over(text) for text in over])]
    assert len(rows) == len(set(rows)) == math.prod(map(len, dimensions))
    for i, values in enumerate(dimensions):
        assert {float(row[i]) for row in rows} == set(values)


NAMES = st.text(min_size=1, max_size=150) | st.text("ab_ .=-A", min_size=1, max_size=6)
BLANK = ['a=""', 'a=" "', "a=nothing", "a=space", 'a="="', "a=nothing seed=1", 'a="" seed=1']


@given(st.lists(NAMES, min_size=2, max_size=8, unique=True))
@example(["a b", "a_b", "a__b", "a_ b", "a _b", "A b", "a  b"])
@example(BLANK)
def test_folders_are_safe_and_tell_names_apart(names):
    folders = [Point(name, Path(), (), {}, 1, None).folder for name in names]
    assert len(set(folders)) == len(names)
    for folder in folders:
        assert re.fullmatch(r"[a-z0-9_+=][a-z0-9._+=-]{0,130}", folder), folder
        assert folder.lower() == folder


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_values_read_the_same_exactly_where_they_are(one, other):
    assert (shown(one) == shown(other)) == (one == other and math.copysign(1, one) == math.copysign(1, other))


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("model.segmenter.tau", "tau"),
        ("model.segmenter.halting_bias", "b_h"),
        ("model.decoder.tau", "decoder.tau"),
        ("training.batch_size", "batch_size"),
        ("testing.batch_size", "testing.batch_size"),
        ("data.src.level", "data.src.level"),
        ("name", "name"),
    ],
)
def test_keys_are_short_and_never_confused(key, name):
    assert short_name(key) == name


@pytest.mark.parametrize(
    ("over", "place"),
    [
        (["model.segmenter.tua=1"], "--over model.segmenter.tua=1: "),
        ([f"{TAU}=0,high"], f"--over {TAU}=high: "),
        (["training.batch_size=0"], "--over training.batch_size=0: "),
        ([f"{BIAS}=x"], f"--over {BIAS}=x: "),
        ([f"{TAU}=0,0.0"], "tau=0 seed=1: "),
        ([f"{TAU}=0.1,1", f"{TAU}=2"], f"--over {TAU}: "),
        (["training.seed=1,2"], "training.seed: "),
        ([TAU], f"--over {TAU}: "),
        ([f"{TAU}="], f"--over {TAU}=: "),
        (["=1"], "--over =1: "),
    ],
)
def test_mistakes_are_named(config, over, place):
    with refuses(InputError, place):
        grid(config, *over)


LEARN = "model.segmenter.learn_halting"


@pytest.mark.parametrize(
    ("over", "listed"),
    [
        ([f"{LEARN}=true,false", f"{TAU}=0,1"], True),
        ([f"{TAU}=1,0", f"{LEARN}=false,true"], True),
        ([f"{LEARN}=false", f"{TAU}=0,1"], False),  # 1 is of no use anywhere
        ([f"{BIAS}=0,x", f"{TAU}=0,1"], False),
    ],
)
def test_values_that_only_do_not_go_together_can_be_listed(config, over, listed):
    with refuses(InputError) as refused:
        grid(config, *over)
    assert (f"{BIAS}=x" in str(refused.value)) == (BIAS in over[0])
    assert ("--list FILE" in str(refused.value)) == listed


def test_a_value_with_commas_stands_in_brackets():
    axis = parse_over("a.b=[],[1,2],{a: 1, b: 2}")
    assert [setting.text for setting in axis] == ["[]", "[1,2]", "{a: 1, b: 2}"]


def write_list(folder: Path, text: str) -> Path:
    path = folder / "list.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_list_names_its_members(config, tmp_path):
    text = f"- settings: {{{TAU}: 0.5}}\n- {{name: far out, settings: {{{TAU}: 1, {BIAS}: -2}}}}\n"
    members = points(Plan(config, read_rows(write_list(tmp_path, text))))
    assert [point.name for point in members] == ["tau=0.5 seed=1", "far out seed=1"]
    assert members[0].values == {TAU: 0.5, BIAS: 1.0}  # the config's, where the member has none
    assert members[1].values == {TAU: 1.0, BIAS: -2.0}


def test_lists_of_values_are_crossed(config, tmp_path):
    text = f"- settings: {{{TAU}: [0, 1], {BIAS}: [-2, 3]}}\n- settings: {{{TAU}: 5}}\n"
    members = points(Plan(config, read_rows(write_list(tmp_path, text)), seeds=[1, 2]))
    assert [point.name for point in members if point.seed == 1] == [
        *("tau=0 b_h=-2 seed=1", "tau=0 b_h=3 seed=1", "tau=1 b_h=-2 seed=1", "tau=1 b_h=3 seed=1"),
        "tau=5 seed=1",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("- {name: x, settings: {model.segmenter.tau: [1, 2]}}\n", "1: members.0.name: "),
        ("- settings:\n    model.segmenter.tau: []\n", "2: members.0.settings.model.segmenter.tau: "),
        ("a: 1\n", "1: "),
        ("", "1: "),
        ("- settings: {}\n- 3\n", "2: members.1: "),
        ("- settings: {}\n  nmae: x\n", "2: members.0.nmae: "),
        ("- name: a/b\n  settings: {}\n", "1: members.0.name: "),
        ("- settings:\n    model.segmenter.tau: x\n", "2: model.segmenter.tau: "),
        ("- settings:\n    model.segmenter.tua: 1\n", "2: model.segmenter.tua: "),
        ("- settings:\n    model.segmenter.act_sise: [1]\n", "2: model.segmenter.act_sise: "),
        ("- settings:\n    model.segmentr.tau: [1]\n", "2: model.segmentr.tau: "),
    ],
)
def test_mistakes_in_a_list_have_their_line(config, tmp_path, text, place):
    with refuses(InputError, f"{tmp_path}/list.yaml:{place}"):
        points(Plan(config, read_rows(write_list(tmp_path, text))))


def test_settings_of_a_list_are_read_back_as_they_were_written(config, tmp_path):
    rows = [
        {
            "settings": {
                "name": "x y",
                TAU: 1e-7,
                "data.cuts": {"type": "whitespace"},
                "training.tensorboard": True,
            }
        }
    ]
    members = points(Plan(config, read_rows(write_list(tmp_path, json.dumps(rows)))))
    made = members[0].config
    assert (made.name, made.model.segmenter.tau, made.data.cuts.type) == ("x y", 1e-7, "whitespace")
    assert made.training.tensorboard is True
