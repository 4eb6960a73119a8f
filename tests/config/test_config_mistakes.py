"""Configs that are refused: every mistake with its file, line and remedy."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_config import GOOD
from wording import refuses, wording

from caesura.config import Config, load_config
from caesura.config.phrasing import ALIASES, _keys
from caesura.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(text: str | bytes, *overrides: str) -> str:
    Path("bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load_config("bad.yaml", overrides)
    return str(caught.value)


def refusal(text: str | bytes, *overrides: str) -> str:
    return wording(complaint(text, *overrides))


# A piece of the good file, what stands there instead, and the key that the message names, if any.
MISTAKES = [
    ("level: char,", "levl: char,", "data.src.levl"),
    ("level: char,", "level: chars,", "data.src.level"),
    ("level: char,", "level: null,", "data.src.level"),
    ("level: char,", "level: bpe,", "data.src.voc_limit"),
    ("level: char,", "", "data.src.level"),
    ("lang: de", "lang: 7", "data.src.lang"),
    ("lang: de", "lang: true", "data.src.lang"),
    ("lang: de", "lang:", "data.src.lang"),
    ("lang: de", "lang: ''", "data.src.lang"),
    ("max_length: 200", "max_length: 2e2", "data.src.max_length"),
    ("max_length: 200", "max_length: 2.5", "data.src.max_length"),
    ("max_length: 200", "max_length: '200'", "data.src.max_length"),
    ("max_length: 200", "voc_limit: 4", "data.src.voc_limit"),
    ("patience: 3", "<patience>: 3", "training.<patience>"),
    ("patience: 3", "patience: -1", "training.patience"),
    ("patience: 3", "patience: true", "training.patience"),
    ("patience: 3", "batch_size:", "training.batch_size"),
    ("patience: 3", "decay: linear", "training.decay"),
    ("patience: 3", "decay: linear\n  updates: 9\n  warmup: 9", "training.decay"),
    ("patience: 3", "decay: inverse-sqrt", "training.decay"),
    ("patience: 3", "adam_betas: [0.9]", "training.adam_betas"),
    ("patience: 3", "adam_betas: [0.9, 1.0]", "training.adam_betas"),
    ("patience: 3", "adam_betas: [-0.1, 0.9]", "training.adam_betas"),
    ("patience: 3", "adam_betas: 0.9", "training.adam_betas"),
    ("patience: 3", "weight_decay: -1", "training.weight_decay"),
    ("patience: 3", "decay: inverse_sqrt\n  warmup: 9", "training.decay"),
    ("patience: 3", f"patience: {'9' * 400}", "training.patience"),
    ("patience: 3", "poison: []", "training.poison"),
    (": 3e-4", ": 0", "training.learning_rate"),
    (": 3e-4", ": .inf", "training.learning_rate"),
    (": 3e-4", ": 1e999", "training.learning_rate"),
    (": 3e-4", ": fast", "training.learning_rate"),
    (": 3e-4", ": !!float x", "training.learning_rate"),
    ("patience: 3", "tensorboard: yes", "training.tensorboard"),
    ("patience: 3", "decrease_factor: 2", "training.decrease_factor"),
    ("patience: 3", "Patience: 3", "training.Patience"),
    ("patience: 3", "xyz: 3", "training.xyz"),
    ("patience: 3", "tau: 3", "training.tau"),
    ("  encoder:", "  seed: 1\n  encoder:", "model.seed"),
    ("lang: en", "joint: true\n    lang: en", "data.trg.joint"),
    ("level: char,", "level: byte, voc_limit: 300,", "data.src.voc_limit"),
    ("level: char,", "level: byte, byte_fallback: true,", "data.src.byte_fallback"),
    ("level: char,", "level: word, byte_fallback: true,", "data.src.byte_fallback"),
    ("level: char,", "level: char, byte_fallback: true, voc_limit: 260,", "data.src.voc_limit"),
    ("tau: 1", "tau: [1]", "model.segmenter.tau"),
    ("{type: recurrent}", "recurrent", "model.decoder"),
    ("{type: recurrent}", "", "model.decoder.type"),
    ("dev.tsv.gz", "[a, b]", "data.dev"),
    ("dev.tsv.gz", "''", "data.dev"),
    ("dev.tsv.gz", "x/dev.de", "data.dev"),
    ("trg: train.en", "trgg: train.en", "data.train.trgg"),
    ("trg: train.en", "trg: ''", "data.train.trg"),
    ("trg: train.en", "trg: 7", "data.train.trg"),
    (", trg: train.en", "", "data.train.trg"),
    ("trial", "../up", "name"),
    ("act_size: 50", "tau: 2", "model.segmenter.tau"),
    ("act_size: 50", "act_size: !!python/name:os.system x", "model.segmenter.act_size"),
    ("{type: recurrent}", "!x {type: a}", "model.decoder"),
    ("act_size: 50", 'act_size: "\\ud800"', "model.segmenter.act_size"),
    ("act_size: 50", "[a]: 50", "model.segmenter"),
    ("act_size: 50", "\tact_size: 50", ""),
    ("act_size: 50", "act_size: *size", ""),
    ("act_size: 50", "act_size: \x07", ""),
    ("act_size: 50", f"act_size: {'[' * 20}{']' * 20}", ""),
]


@pytest.mark.parametrize(("old", "new", "key"), MISTAKES)
def test_a_mistake_is_named_with_its_line_and_remedy(folder: Path, old: str, new: str, key: str) -> None:
    line = GOOD[: GOOD.index(old)].count("\n") + 1
    message = refusal(GOOD.replace(old, new, 1))
    assert message.startswith(f"bad.yaml:{line}: {key}{': ' if key else ''}")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"", "bad.yaml:1: "),
        (b"# nothing\n", "bad.yaml:1: "),
        (b"- a\n", "bad.yaml:1: "),
        (b"just text", "bad.yaml:1: "),
        (b"name: a\ndata: \xff\n", "bad.yaml:2: "),
        (b"a: [1\nb: 2\n", "bad.yaml:2: "),
        (b"a: b: c\n", "bad.yaml:1: "),
        (b"a: 1\n---\nb: 1\n", "bad.yaml:2: "),
        (b"#" * (2**20 + 1), "bad.yaml: "),
        (b"[" * 2**20, "bad.yaml:1: "),
        (b"a: &x [1]\nb: *x\n", "bad.yaml:2: "),
    ],
)
def test_what_is_no_config_at_all(folder: Path, content: bytes, place: str) -> None:
    assert refusal(content).startswith(place)


def test_a_missing_file_and_a_folder(folder: Path) -> None:
    with refuses(InputError, "nowhere.yaml: "):
        load_config("nowhere.yaml")
    with refuses(InputError, f"{folder}: "):
        load_config(folder)
    Path("mine.yaml").write_text(GOOD)
    with refuses(InputError, f"{folder}: ", "mine.yaml"):
        load_config(folder)


@pytest.mark.parametrize("alias", ALIASES)
def test_names_of_other_toolkits_lead_to_our_keys(folder: Path, alias: str) -> None:
    parts = ALIASES[alias].split(".")
    assert tuple(parts) in set(_keys(Config)), "a key of a config"
    message = complaint(GOOD, f"training.{alias.replace('_', '-')}=1")
    assert parts[-1] in re.findall(r"\w+", message.partition("=1: ")[2])
    if len(parts) == 2:
        assert f" {'.'.join(parts)}?" in complaint(GOOD, f"data.src.{alias}=1")


def test_a_missing_dev_set_is_explained_in_place(folder: Path) -> None:
    message = refusal("".join(line for line in GOOD.splitlines(True) if "dev:" not in line))
    assert message.startswith("bad.yaml:2: data.dev: missing: ")
    assert "the same" not in message
    assert "missing" not in refusal(GOOD.replace("dev:", "valid:")), "it is there, under another name"


def test_all_mistakes_of_a_file_come_together_in_its_order(folder: Path) -> None:
    text = GOOD.replace("lang: de", "lng: de").replace("patience: 3", "patience: 0\n  patience: 1")
    places = [
        "--set name=a/b",
        "bad.yaml:5: data.src.lng",
        "bad.yaml:18: training.patience",
        "bad.yaml:20: testing",
    ]
    lines = refusal(text + "testing: [1]\n", "name=a/b").splitlines()
    assert all(line.startswith(f"{place}: ") for line, place in zip(lines, places, strict=True))


def test_not_more_mistakes_are_shown_than_anyone_reads(folder: Path) -> None:
    *lines, last = refusal(GOOD + "".join(f"x{n}: 1\n" for n in range(60))).splitlines()
    assert len(lines) == 10
    assert "50" in last


def test_a_missing_section_is_explained(folder: Path) -> None:
    data, model = refusal("name: a\n").splitlines()
    assert data.startswith("bad.yaml:1: data: ")
    assert model.startswith("bad.yaml:1: model: ")


@pytest.mark.parametrize(
    "sides", [[], ["data.src={level: bpe, voc_limit: 90}", "data.trg={level: bpe, voc_limit: 80}"]]
)
def test_joint_sides_must_agree(folder: Path, sides: list[str]) -> None:
    assert refusal(GOOD, "data.joint=true", *sides).startswith("--set data.joint=true: ")


@pytest.mark.parametrize(
    "override",
    [
        "training.learning_rat=1e-3",
        "training.seed=[",
        "training.seed",
        "=3",
        "training..seed=3",
        "training.seed=-1",
        "training={sed: 1}",
        "training.seed.x=1",
        "base=good.yaml",
        "tau=1",
        "testing.batch_type=symbols",
        "lang=de",
    ],
)
def test_a_wrong_override_is_named_as_it_was_written(folder: Path, override: str) -> None:
    assert refusal(GOOD, override).startswith(f"--set {override}: ")


def test_a_rule_between_keys_is_broken_where_the_command_line_broke_it(folder: Path) -> None:
    text = GOOD.replace("patience: 3", "decay: linear\n  warmup: 9\n  updates: 90")
    assert refusal(text, "training.updates=5").startswith("--set training.updates=5: ")
    assert refusal(text, "training.warmup=100").startswith("--set training.warmup=100: ")


@pytest.mark.parametrize("base", ["gone.yaml", "bad.yaml"])
def test_a_base_that_cannot_be_had(folder: Path, base: str) -> None:
    assert refusal(f"name: a\nbase: {base}\n").startswith("bad.yaml:2: base: ")
    assert "bad.yaml:1: base: " in refusal(f"base: 7\n{GOOD}")


@settings(max_examples=50)
@given(content=st.binary(max_size=60) | st.text("ab:-[]{}&*!|>'\"#%@` \n\t01.e", max_size=60).map(str.encode))
def test_no_file_whatever_shows_a_traceback(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_config(path)


@pytest.mark.parametrize(
    ("cuts", "key"),
    [
        ("{}", ".type"),
        ("{type: whitspace}", ".type"),
        ("{type: [a]}", ".type"),
        ("7", ""),
        ("{type: bpe}", ".voc_limit"),
        ("{type: bpe, voc_limt: 30}", ".voc_limt"),
        ("{type: bpe, voc_limit: 30, most: 3}", ".most"),
        ("{type: entropy}", ".target"),
        ("{type: entropy, target: 0.5}", ".target"),
        ("{type: entropy, target: 4, order: 1}", ".order"),
        ("{type: entropy, target: 4, model: gru, order: 6}", ".order"),
        ("{type: entropy, target: 4, size: 64}", ".size"),
        ("{type: entropy, target: 4, model: gru, size: 513}", ".size"),
        ("{type: entropy, target: 4, model: lstm}", ".model"),
        ("{type: entropy, target: 4, by: fall}", ".by"),
        ("{type: alignment}", ".target"),
        ("{type: alignment, target: 4, voc_limit: 5000}", ".voc_limit"),
        ("{type: file, dev: d}", ".train"),
        ("{type: file, train: 7, dev: d}", ".train"),
        ("{type: whitespace, side: both}", ".side"),
        ("{type: whitespace, most: 0}", ".most"),
        ("{type: characters}", ".characters"),
    ],
)
def test_a_mistake_in_the_cuts_is_named_with_its_key(folder: Path, cuts: str, key: str) -> None:
    text = GOOD.replace("data:\n", f"data:\n  cuts: {cuts}\n", 1)
    line = text[: text.index("  cuts:")].count("\n") + 1
    assert refusal(text).startswith(f"bad.yaml:{line}: data.cuts{key}: ")


def test_cuts_that_are_learnt_need_characters_and_paths_start_from_the_file(folder: Path) -> None:
    for cuts in ("{type: bpe, voc_limit: 20}", "{type: entropy, target: 4}", "{type: alignment, target: 4}"):
        message = refusal(GOOD, f"data.cuts={cuts}", "data.src.level=word")
        assert message.startswith(f"--set data.cuts={cuts}: ")
        assert "data.src.level: char" in message
    (folder / "sub").mkdir()
    text = GOOD.replace("data:\n", "data:\n  cuts: {type: file, train: a.xz, dev: d, test: ~/t}\n", 1)
    (folder / "sub" / "c.yaml").write_text(text)
    cuts = load_config("sub/c.yaml").data.cuts
    assert cuts is not None
    assert cuts.train == folder / "sub" / "a.xz"  # type: ignore[union-attr]
    assert cuts.test == Path("~/t").expanduser()  # type: ignore[union-attr]
