"""A model folder from a stranger is data: damaged, forged or hostile, it is refused or it is a model."""

import json
import math
import os
import random
import re
import resource
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
import torch
from cli.program import contents
from helpers import ACT, ACT_DECODER, tiny_model
from safetensors import SafetensorError, safe_open
from torch import Tensor
from wording import refuses

from caesura.analysis.halting import history
from caesura.data.files import checksum
from caesura.data.tensors import load_tensors, read_facts, save_tensors
from caesura.data.vocabulary import CharVocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.data.words import WORDS, load_words
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.model_folder import CUTS_GRU, CUTS_NGRAMS
from caesura.training.journal import METRICS

DESCRIPTION = ("config.yaml", "src.vocab.json", "trg.vocab.json")
FILES = (*DESCRIPTION, "model.safetensors")
TEXT = ["abc", "", "hgfedcba ☃"]
SEED = 1


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model folder by the kind of its vocabularies; not to be written to."""
    folder = tmp_path_factory.mktemp("stranger")
    characters = tiny_model(ACT, decoder=ACT_DECODER).float()
    characters.save_pretrained(folder / "char")
    pieces = train_vocabulary("bpe", ["abc abcd hgf edcba"] * 3, 40)
    torch.manual_seed(0)
    Translator.build(characters.config, pieces, pieces).save_pretrained(folder / "bpe")
    return {kind: folder / kind for kind in ("char", "bpe")}


@pytest.fixture
def original(originals: dict[str, Path]) -> Path:
    """A model of characters; not to be written to."""
    return originals["char"]


@pytest.fixture
def model(original: Path, tmp_path: Path) -> Path:
    """The same, to be changed."""
    return Path(shutil.copytree(original, tmp_path / "model"))


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """Ends what hangs."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def sign(folder: Path) -> None:
    """Make the checksums right, as a stranger would."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    facts = read_facts(folder / "model.safetensors")
    names = [name for name in (*DESCRIPTION, CUTS_NGRAMS, CUTS_GRU) if (folder / name).exists()]
    facts["files"] = {name: checksum(folder / name) for name in names}
    save_tensors(folder / "model.safetensors", tensors, facts)


def flipped(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncated(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def escaped(content: bytes, rng: random.Random) -> bytes:
    """With the escape of what no text holds in place of a letter."""
    at = rng.choice([m.start() for m in re.finditer(rb"[a-z]", content)])
    return content[:at] + rng.choice([rb"\n", rb"\u0000", rb"\ud800", rb"\u0007"]) + content[at + 1 :]


DAMAGES: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flipped": flipped,
    "truncated": truncated,
    "escaped": escaped,
}
ROUNDS = [12, pytest.param(1000, marks=pytest.mark.soak)]


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
def test_damage_is_refused_by_the_files_name_or_changes_nothing(
    original: Path, model: Path, name: str, damage: str, rounds: int
) -> None:
    rng, whole = random.Random(SEED), (original / name).read_bytes()
    weights, _ = load_tensors(original / "model.safetensors")
    outcomes: Counter[str] = Counter()
    for _ in range(rounds):
        content = DAMAGES[damage](whole, rng)
        (model / name).write_bytes(content)
        try:
            with at_most(20):
                loaded = Translator.from_pretrained(model)
        except InputError as problem:
            outcomes["refused" if str(problem).startswith(str(model / name)) else str(problem)] += 1
            continue
        outcomes["as it was"] += 1
        assert all(value.equal(weights[key]) for key, value in loaded.state_dict().items())
        assert name == "model.safetensors" or content == whole
    assert contents(model) == contents(original) | {name: content}
    print(name, damage, dict(outcomes))
    assert outcomes.keys() <= {"refused", "as it was"}
    assert outcomes["refused"] > 0.9 * rounds


@pytest.mark.parametrize("rounds", ROUNDS)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_a_forged_folder_is_refused_or_translates_line_for_line(
    originals: dict[str, Path], tmp_path: Path, kind: str, name: str, damage: str, rounds: int
) -> None:
    original, model = originals[kind], Path(shutil.copytree(originals[kind], tmp_path / "model"))
    rng, whole = random.Random(SEED), (original / name).read_bytes()
    outcomes: Counter[str] = Counter()
    for _ in range(rounds):
        shutil.copy(original / "model.safetensors", model)
        (model / name).write_bytes(DAMAGES[damage](whole, rng))
        try:
            sign(model)
        except (InputError, SafetensorError):
            outcomes["beyond forging"] += 1
            continue
        try:
            with at_most(20):
                loaded = Translator.from_pretrained(model)
                outcomes["loaded"] += 1
                translations = loaded.translate(TEXT, beam=2)
                assert len("\n".join(translations).encode("utf-8").split(b"\n")) == len(TEXT)
                assert ["".join(pieces) for pieces in loaded.segment(TEXT)] == TEXT
        except InputError as problem:
            outcomes["refused" if str(problem).startswith(str(model)) else str(problem)] += 1
    print(kind, name, damage, dict(outcomes))
    assert outcomes.keys() <= {"refused", "loaded", "beyond forging"}


@contextmanager
def little_memory(more: int) -> Iterator[None]:
    """Inside, `more` bytes beside what is in use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + more, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.parametrize("number", [10**6, 10**9, 10**12, 10**19, 10**40, -1, 0])
@pytest.mark.parametrize(
    "key",
    [
        *("embedding_dim: 4", "act_size: 3", "output_dim: 5", "hidden_size: 3", "hidden_size: 6"),
        *("attention_size: 5", "beam_size: 5", "batch_size: 64", "max_input: 5000", "max_output_extra: 8"),
    ],
)
def test_a_config_that_asks_for_much_is_refused_before_memory_is_taken(
    model: Path, key: str, number: int
) -> None:
    text = (model / "config.yaml").read_text()
    assert f" {key}\n" in text
    (model / "config.yaml").write_text(text.replace(f" {key}\n", f" {key.split(':')[0]}: {number}\n"))
    sign(model)
    if (key, number) == ("max_input: 5000", 10**6) or (key, number) == ("max_output_extra: 8", 10**6):
        return  # the most that is allowed
    with little_memory(1 << 28), at_most(20), pytest.raises(InputError) as caught:
        Translator.from_pretrained(model)
    assert str(caught.value).startswith(str(model))


def forge_vocabulary(folder: Path, **changes: object) -> None:
    path = folder / "src.vocab.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]


@pytest.mark.parametrize(
    "change",
    [
        {"tokens": [*SPECIALS, *"aabcdefg"]},
        {"tokens": [*SPECIALS, *"abcdefg", "hi"]},
        {"tokens": [*SPECIALS, *"abcdefg\n"]},
        {"tokens": [*SPECIALS, *"abcdefg\0"]},
        {"tokens": [*SPECIALS, *"abcdefg\ud800"]},
        {"tokens": [*SPECIALS, *"abcdefg"]},
        {"tokens": [*SPECIALS, *"abcdefghi"]},
        {"tokens": "abcdefgh"},
        {"tokens": [*SPECIALS, *"abcdefg", 8]},
        {"tokens": {"a": 1}},
        {"kind": "pickle"},
        {"kind": ["char"]},
        {"format": 2},
    ],
    ids=lambda change: json.dumps(change)[:40],
)
def test_a_forged_vocabulary_is_refused(model: Path, change: dict[str, object]) -> None:
    forge_vocabulary(model, **change)
    sign(model)
    with pytest.raises(InputError) as caught:
        Translator.from_pretrained(model)
    assert str(caught.value).startswith(str(model))


def test_a_vocabulary_of_the_same_size_but_other_symbols_is_noticed(model: Path) -> None:
    CharVocabulary("bacdefgh").save(model / "src.vocab.json")
    with refuses(InputError, f"{model}/src.vocab.json: "):
        Translator.from_pretrained(model)


@pytest.mark.parametrize("name", DESCRIPTION)
def test_a_file_too_large_is_not_read(model: Path, name: str) -> None:
    with (model / name).open("r+b") as file:
        file.truncate(1 << 32)  # takes no room on disk
    with little_memory(1 << 28), at_most(60), refuses(InputError, f"{model / name}: "):
        Translator.from_pretrained(model)


@pytest.mark.parametrize("name", FILES)
def test_a_link_out_of_the_folder_is_refused_and_one_inside_followed(
    model: Path, tmp_path: Path, name: str
) -> None:
    (model / name).rename(tmp_path / name)
    (model / name).symlink_to(tmp_path / name)
    with refuses(InputError, f"{model / name}: "):
        Translator.from_pretrained(model)
    (model / name).unlink()
    (tmp_path / name).rename(model / "elsewhere")
    (model / name).symlink_to("elsewhere")
    (tmp_path / "link").symlink_to(model)
    assert len(Translator.from_pretrained(tmp_path / "link").translate(TEXT)) == len(TEXT)


@pytest.mark.parametrize("name", [*FILES, "cuts.vocab.json"])
def test_a_link_to_itself_is_refused(model: Path, name: str) -> None:
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(name)
    with pytest.raises(InputError) as caught:
        Translator.from_pretrained(model)
    assert str(caught.value).startswith(str(model))
    assert name in str(caught.value)


def test_a_config_reads_no_other_file(model: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password: hunter2\n")
    config = model / "config.yaml"
    config.write_text(f"base: {tmp_path}/secret\n" + config.read_text())
    sign(model)
    with refuses(InputError, f"{config}:1: base: "):
        Translator.from_pretrained(model)


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: weight[:-1],
        lambda weight: weight.long(),
        lambda weight: weight.double(),
        lambda weight: weight.unsqueeze(0),
    ],
)
def test_weights_of_another_shape_or_type_are_refused(
    model: Path, change: Callable[[Tensor], Tensor]
) -> None:
    weights, facts = load_tensors(model / "model.safetensors")
    name = sorted(weights)[3]
    save_tensors(model / "model.safetensors", weights | {name: change(weights[name]).clone()}, facts)
    with pytest.raises(InputError) as caught:
        Translator.from_pretrained(model)
    assert str(caught.value).startswith(f"{model}/model.safetensors: ")


@pytest.mark.parametrize("files", [None, [], {}, {"config.yaml": 1}, "deep"])
def test_metadata_that_is_not_what_was_written_is_refused(model: Path, files: object) -> None:
    weights, facts = load_tensors(model / "model.safetensors")
    save_tensors(model / "model.safetensors", weights, facts | {"files": files})
    with refuses(InputError, model):
        Translator.from_pretrained(model)


@pytest.mark.parametrize("number", [99, 10**4000, "\x1b[2J", [[]], None, 1.5])
def test_the_version_of_a_later_format_is_shown_escaped_and_short(model: Path, number: object) -> None:
    weights, facts = load_tensors(model / "model.safetensors")
    forged = facts | {"format": number, "version": "\x1b]0;owned\x07\n" * 1000}
    save_tensors(model / "model.safetensors", weights, forged)
    with pytest.raises(InputError) as caught:
        Translator.from_pretrained(model)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 250 + len(str(model))
    assert r"by caesura \x1b]0;owned" in str(caught.value)


DEEP = b"[" * 100_000
GUARDED: dict[str, Callable[[Path], object]] = {
    WORDS: lambda folder: load_words(folder / WORDS),
    METRICS: history,
}


@pytest.mark.parametrize("name", GUARDED)
def test_words_and_log_of_a_folder_are_refused_where_they_are_not_its_own(
    model: Path, tmp_path: Path, name: str
) -> None:
    def refused() -> None:
        with little_memory(1 << 29), at_most(20), refuses(InputError, f"{model / name}: "):
            GUARDED[name](model)
        (model / name).unlink()

    (tmp_path / "secret").write_text("{}")
    (model / name).symlink_to(tmp_path / "secret")
    refused()
    (model / name).write_bytes(b"")
    os.truncate(model / name, 1 << 32)  # takes no room on disk
    refused()
    (model / name).write_bytes(DEEP)
    with little_memory(1 << 29), at_most(20), pytest.raises(InputError, match=f"^{model / name}: "):
        GUARDED[name](model)


def test_words_that_cannot_be_printed_are_refused_and_numbers_no_float_holds_are_none(model: Path) -> None:
    side = {"total": 1, "complete": True, "counts": {"\ud800": 1}}
    (model / WORDS).write_text(json.dumps({"format": 1, "src": side, "trg": side}))
    with pytest.raises(InputError, match=f"^{model / WORDS}: "):
        load_words(model / WORDS)
    (model / METRICS).write_text(json.dumps({"kind": "validation", "bleu": 10**400}) + "\n\xff\n")
    records = history(model)
    assert records is not None
    assert math.isnan(records.bleu[0])


def test_weights_in_another_precision_come_back_in_it(tmp_path: Path) -> None:
    expected = tiny_model(ACT)
    expected.save_pretrained(tmp_path)
    loaded = Translator.from_pretrained(tmp_path)
    assert {value.dtype for value in loaded.state_dict().values()} == {torch.float64}
    assert loaded.translate(TEXT) == expected.translate(TEXT)


def test_nothing_in_the_package_unpickles_or_runs_what_it_reads() -> None:
    package = Path(__file__).parents[2] / "caesura"
    dangerous = re.compile(r"pickle|torch\.(load|save)\b|(?<![.\w])(eval|exec)\(|yaml\.(load|unsafe_load)\(")
    uses = {path.name: dangerous.findall(path.read_text(encoding="utf-8")) for path in package.rglob("*.py")}
    assert {name for name, words in uses.items() if words} == set()
