"""Configs that are refused: every mistake with its file, line and remedy."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_config import GOOD

from caesura.config import Config, load_config
from caesura.config.phrasing import ALIASES, _keys
from caesura.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refusal(text: str | bytes, *overrides: str) -> str:
    Path("bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load_config("bad.yaml", overrides)
    return str(caught.value)


# A piece of the good file, what stands there instead, and the complaint about that line (...: any ending).
MISTAKES = [
    ("level: char,", "levl: char,", "data.src.levl: unknown key; did you mean 'level'?"),
    (
        "level: char,",
        "level: chars,",
        "data.src.level: 'chars' is not one of char, word, bpe, wordpiece; did you mean 'char'?",
    ),
    ("level: char,", "level: null,", "data.src.level: null is not one of char, word, bpe, wordpiece"),
    ("level: char,", "level: bpe,", "data.src.voc_limit: level bpe needs a vocabulary size, such as 15000"),
    ("level: char,", "", "data.src.level: missing: what a symbol is: char, word, bpe or wordpiece"),
    ("lang: de", "lang: 7", "data.src.lang: 7 is not text; put it in quotes"),
    ("lang: de", "lang: true", "data.src.lang: true is not text; put it in quotes"),
    ("lang: de", "lang:", "data.src.lang: null is not text; put it in quotes"),
    ("lang: de", "lang: ''", "data.src.lang: is empty"),
    ("max_length: 200", "max_length: 2e2", "data.src.max_length: 200.0 is not a whole number; write 200"),
    ("max_length: 200", "max_length: 2.5", "data.src.max_length: 2.5 is not a whole number"),
    ("max_length: 200", "max_length: '200'", "data.src.max_length: '200' is not a whole number"),
    ("max_length: 200", "voc_limit: 4", "data.src.voc_limit: 4 is too small; at least 5"),
    ("patience: 3", "patience: -1", "training.patience: -1 is too small; at least 1"),
    ("patience: 3", "patience: true", "training.patience: true is not a whole number"),
    ("patience: 3", "batch_size:", "training.batch_size: null is not a whole number"),
    (
        "patience: 3",
        "decay: linear",
        "training.decay: linear needs training.updates, more than training.warmup",
    ),
    ("patience: 3", "decay: linear\n  updates: 9\n  warmup: 9", "training.decay: linear needs training..."),
    ("patience: 3", f"patience: {'9' * 400}", "training.patience: the number '9999..."),
    ("patience: 3", "poison: []", "training.poison: was a hook for tests and is gone; remove it"),
    (": 3e-4", ": 0", "training.learning_rate: 0 is too small; more than 0"),
    (": 3e-4", ": .inf", "training.learning_rate: '.inf' is not a number"),
    (": 3e-4", ": 1e999", "training.learning_rate: the number '1e999' is out of range"),
    (": 3e-4", ": fast", "training.learning_rate: 'fast' is not a number"),
    (": 3e-4", ": !!float x", "training.learning_rate: 'x' is not a number of this kind"),
    ("patience: 3", "tensorboard: yes", "training.tensorboard: 'yes' is not true or false"),
    ("patience: 3", "decrease_factor: 2", "training.decrease_factor: 2 is too large; less than 1"),
    ("patience: 3", "Patience: 3", "training.Patience: unknown key; did you mean 'patience'?"),
    ("patience: 3", "xyz: 3", "training.xyz: unknown key"),
    (
        "patience: 3",
        "tau: 3",
        "training.tau: unknown key; did you mean model.segmenter.tau or model.decoder.tau?",
    ),
    ("  encoder:", "  seed: 1\n  encoder:", "model.seed: unknown key; did you mean training.seed?"),
    ("lang: en", "joint: true\n    lang: en", "data.trg.joint: unknown key; did you mean data.joint?"),
    ("tau: 1", "tau: [1]", "model.segmenter.tau: [1] is not a number"),
    ("{type: recurrent}", "recurrent", "model.decoder: 'recurrent' is not a section of `key: value` lines"),
    ("{type: recurrent}", "", "model.decoder.type: missing: the registered name"),
    ("dev.tsv.gz", "[a, b]", 'data.dev: ["a", "b"] is not a FILE.tsv or {src: FILE, trg: FILE}'),
    ("dev.tsv.gz", "''", "data.dev: '' is not a .tsv; for two text files write {src: FILE, trg: FILE}"),
    (
        "dev.tsv.gz",
        "x/dev.de",
        "data.dev: 'dev.de' is not a .tsv; for two text files write {src: FILE, trg: FILE}",
    ),
    ("trg: train.en", "trgg: train.en", "data.train.trgg: unknown key; did you mean 'trg'?"),
    ("trg: train.en", "trg: ''", "data.train.trg: a file name is wanted"),
    ("trg: train.en", "trg: 7", "data.train.trg: 7 is not a file name"),
    (", trg: train.en", "", "data.train.trg: missing: their translations, line by line"),
    (
        "trial",
        "../up",
        "name: '../up' may hold letters, digits, spaces and . _ + - only, and not start with a mark",
    ),
    ("act_size: 50", "tau: 2", "model.segmenter.tau: written twice, first on line 12"),
    (
        "act_size: 50",
        "act_size: !!python/name:os.system x",
        "model.segmenter.act_size: the tag python/name:os.system is...",
    ),
    ("{type: recurrent}", "!x {type: a}", "model.decoder: the tag !x is not supported"),
    ("act_size: 50", 'act_size: "\\ud800"', "model.segmenter.act_size: half a character (a lone surrogate)"),
    ("act_size: 50", "[a]: 50", "model.segmenter: a key must be a plain word"),
    ("act_size: 50", "\tact_size: 50", "a tab; indent with spaces"),
    ("act_size: 50", "act_size: *size", "aliases (*name) are not supported..."),
    ("act_size: 50", "act_size: \x07", "character '\\x07' is not allowed"),
    ("act_size: 50", f"act_size: {'[' * 20}{']' * 20}", "nested too deeply"),
]


@pytest.mark.parametrize(("old", "new", "complaint"), MISTAKES)
def test_a_mistake_is_named_with_its_line_and_remedy(
    folder: Path, old: str, new: str, complaint: str
) -> None:
    line = GOOD[: GOOD.index(old)].count("\n") + 1
    message = refusal(GOOD.replace(old, new, 1))
    if complaint.endswith("..."):
        assert message.startswith(f"bad.yaml:{line}: {complaint[:-3]}")
        assert "\n" not in message
    else:
        assert message == f"bad.yaml:{line}: {complaint}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "bad.yaml:1: the file is empty; a config has sections such as data: and model:"),
        (b"# nothing\n", "bad.yaml:1: the file is empty; a config has sections such as data: and model:"),
        (b"- a\n", "bad.yaml:1: the file must hold `key: value` pairs, not a list"),
        (b"just text", "bad.yaml:1: the file must hold `key: value` pairs, not text"),
        (b"name: a\ndata: \xff\n", "bad.yaml:2: not UTF-8; save the file as UTF-8"),
        (b"a: [1\nb: 2\n", "bad.yaml:2: not valid YAML: expected ',' or ']', but got ':'"),
        (b"a: b: c\n", "bad.yaml:1: not valid YAML: mapping values are not allowed here"),
        (b"a: 1\n---\nb: 1\n", "bad.yaml:2: but found another document"),
        (b"#" * (2**20 + 1), "bad.yaml: larger than 1 MiB; this is no config"),
        (b"[" * 2**20, "bad.yaml:1: nested too deeply"),
        (
            b"a: &x [1]\nb: *x\n",
            "bad.yaml:2: aliases (*name) are not supported; write the value out, or share",
        ),
    ],
)
def test_what_is_no_config_at_all(folder: Path, content: bytes, message: str) -> None:
    assert refusal(content).startswith(message)


def test_a_missing_file_and_a_folder(folder: Path) -> None:
    with pytest.raises(InputError, match=r"^nowhere\.yaml: No such file; `caesura recipes` "):
        load_config("nowhere.yaml")
    with pytest.raises(InputError, match=rf"^{re.escape(str(folder))}: is a directory; "):
        load_config(folder)
    Path("mine.yaml").write_text(GOOD)
    with pytest.raises(InputError, match=r"such as .*mine\.yaml$"):
        load_config(folder)


@pytest.mark.parametrize("alias", ALIASES)
def test_names_of_other_toolkits_lead_to_our_keys(folder: Path, alias: str) -> None:
    parts = ALIASES[alias].split(".")
    assert tuple(parts) in set(_keys(Config)), "a key of a config"
    message = refusal(GOOD, f"training.{alias.replace('_', '-')}=1")
    assert parts[-1] in re.findall(r"\w+", message.partition("did you mean")[2])
    if len(parts) == 2:
        assert f"did you mean {'.'.join(parts)}?" in refusal(GOOD, f"data.src.{alias}=1")


def test_a_missing_dev_set_is_explained_in_place(folder: Path) -> None:
    message = refusal("".join(line for line in GOOD.splitlines(True) if "dev:" not in line))
    assert message.startswith("bad.yaml:2: data.dev: missing: ")
    assert "the same" not in message
    assert "missing" not in refusal(GOOD.replace("dev:", "valid:")), "it is there, under another name"


def test_all_mistakes_of_a_file_come_together_in_its_order(folder: Path) -> None:
    text = GOOD.replace("lang: de", "lng: de").replace("patience: 3", "patience: 0\n  patience: 1")
    assert refusal(text + "testing: [1]\n", "name=a/b").splitlines() == [
        "--set name=a/b: 'a/b' may hold letters, digits, spaces and . _ + - only, and not start with a mark",
        "bad.yaml:5: data.src.lng: unknown key; did you mean 'lang'?",
        "bad.yaml:18: training.patience: written twice, first on line 17",
        "bad.yaml:20: testing: [1] is not a section of `key: value` lines",
    ]


def test_not_more_mistakes_are_shown_than_anyone_reads(folder: Path) -> None:
    *lines, last = refusal(GOOD + "".join(f"x{n}: 1\n" for n in range(60))).splitlines()
    assert len(lines) == 10
    assert last == "... and 50 more"


def test_a_missing_section_is_explained(folder: Path) -> None:
    assert refusal("name: a\n").splitlines() == [
        "bad.yaml:1: data: missing: the text",
        "bad.yaml:1: model: missing: the translator",
    ]


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (["data.joint=true"], "only bpe and wordpiece can be joint, not char"),
        (
            [
                "data.joint=true",
                "data.src={level: bpe, voc_limit: 90}",
                "data.trg={level: bpe, voc_limit: 80}",
            ],
            "src and trg must have the same level and voc_limit",
        ),
    ],
)
def test_joint_sides_must_agree(folder: Path, overrides: list[str], complaint: str) -> None:
    assert refusal(GOOD, *overrides) == f"--set data.joint=true: {complaint}"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.learning_rat=1e-3", "unknown key; did you mean 'learning_rate'?"),
        ("training.seed=[", "not valid YAML: expected the node content"),
        ("training.seed", "write it as key=value, such as training.seed=2"),
        ("=3", "write it as key=value, such as training.seed=2"),
        ("training..seed=3", "write it as key=value, such as training.seed=2"),
        ("training.seed=-1", "-1 is too small; at least 0"),
        ("training={sed: 1}", "training.sed: unknown key; did you mean 'seed'?"),
        ("training.seed.x=1", 'training.seed: {"x": 1} is not a whole number'),
        ("base=good.yaml", "unknown key"),
        ("tau=1", "unknown key; did you mean model.segmenter.tau or model.decoder.tau?"),
        ("testing.batch_type=symbols", "unknown key; did you mean training.batch_type?"),
        ("lang=de", "unknown key; did you mean data.src.lang or data.trg.lang?"),
    ],
)
def test_a_wrong_override_is_named_as_it_was_written(folder: Path, override: str, message: str) -> None:
    assert refusal(GOOD, override).startswith(f"--set {override}: {message}")


@pytest.mark.parametrize(
    ("base", "complaint"),
    [
        ("gone.yaml", "no file 'gone.yaml' in ."),
        ("bad.yaml", "more than 4 files deep; do they go in a circle?"),
    ],
)
def test_a_base_that_cannot_be_had(folder: Path, base: str, complaint: str) -> None:
    assert refusal(f"name: a\nbase: {base}\n") == f"bad.yaml:2: base: {complaint}"
    assert "bad.yaml:1: base: 7 is not a file name" in refusal(f"base: 7\n{GOOD}")


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
        ("{}", ".type: missing"),
        ("{type: whitspace}", ".type: 'whitspace' is not one of"),
        ("{type: [a]}", '.type: ["a"] is not one of'),
        ("7", ": 7 is not a section"),
        ("{type: bpe}", ".voc_limit: missing: "),
        ("{type: bpe, voc_limt: 30}", ".voc_limt: unknown key; did you mean 'voc_limit'?"),
        ("{type: bpe, voc_limit: 30, most: 3}", ".most: not a key of this type"),
        ("{type: entropy}", ".target: missing: "),
        ("{type: entropy, target: 0.5}", ".target: 0.5 is too small"),
        ("{type: entropy, target: 4, order: 1}", ".order: 1 is too small"),
        ("{type: entropy, target: 4, model: gru, order: 6}", ".order: is not an option of model gru"),
        ("{type: entropy, target: 4, size: 64}", ".size: is not an option of model ngram"),
        ("{type: entropy, target: 4, model: gru, size: 513}", ".size: 513 is too large"),
        ("{type: entropy, target: 4, model: lstm}", ".model: 'lstm' is not one of ngram, gru"),
        ("{type: entropy, target: 4, by: fall}", ".by: 'fall' is not one of global, rise"),
        ("{type: file, dev: d}", ".train: missing: "),
        ("{type: file, train: 7, dev: d}", ".train: 7 is not a file name"),
        ("{type: whitespace, side: both}", ".side: 'both' is not one of before, after"),
        ("{type: whitespace, most: 0}", ".most: 0 is too small"),
        ("{type: characters}", ".characters: "),
    ],
)
def test_a_mistake_in_the_cuts_is_named_with_its_key(folder: Path, cuts: str, key: str) -> None:
    text = GOOD.replace("data:\n", f"data:\n  cuts: {cuts}\n", 1)
    line = text[: text.index("  cuts:")].count("\n") + 1
    assert refusal(text).startswith(f"bad.yaml:{line}: data.cuts{key}")


def test_cuts_that_are_learnt_need_characters_and_paths_start_from_the_file(folder: Path) -> None:
    for cuts in ("{type: bpe, voc_limit: 20}", "{type: entropy, target: 4}"):
        said = refusal(GOOD, f"data.cuts={cuts}", "data.src.level=word")
        kind = cuts.split()[1].strip(",")
        assert said.startswith(f"--set data.cuts={cuts}: type {kind} needs data.src.level: char")
    (folder / "sub").mkdir()
    text = GOOD.replace("data:\n", "data:\n  cuts: {type: file, train: a.xz, dev: d, test: ~/t}\n", 1)
    (folder / "sub" / "c.yaml").write_text(text)
    cuts = load_config("sub/c.yaml").data.cuts
    assert cuts is not None
    assert cuts.train == folder / "sub" / "a.xz"  # type: ignore[union-attr]
    assert cuts.test == Path("~/t").expanduser()  # type: ignore[union-attr]
