"""What a stranger's files ask for is refused before memory or time is spent on it."""

import json
import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from folders.test_strangers import at_most, forge_vocabulary, little_memory, sign
from helpers import ACT, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura import model_folder
from caesura.config import load_config, yamlfile
from caesura.data import files, tensors, vocabulary, vocabulary_file
from caesura.data.files import checksum, parse_json
from caesura.data.tensors import DamagedError, read_facts, read_header
from caesura.data.vocabulary import SPECIALS, WordVocabulary
from caesura.data.vocabulary_file import load_vocabulary
from caesura.errors import InputError
from caesura.experiments.sweep_results import load
from caesura.inference import Translator
from caesura.kernels.adam import Adam
from caesura.model_folder import load_vocabularies
from caesura.training import journal
from caesura.training.checkpoint import Progress, load_checkpoint, save_checkpoint, snapshot
from caesura.training.journal import training_seconds

GIB = 1 << 30
ROOM = 1 << 28  # bytes that a refusal may take
Header = dict[str, Any]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model folder, to be changed."""
    tiny_model(ACT).float().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails where tensors are mapped."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("mapped")

    monkeypatch.setattr(tensors, "safe_open", fail)


def header_of(path: Path) -> Header:
    with path.open("rb") as file:
        return json.loads(file.read(min(int.from_bytes(file.read(8), "little"), 1 << 20)))


def write_header(path: Path, header: Header | bytes, size: int | None = None) -> None:
    """A file of tensors that takes no room on disk, whatever its header promises."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    if size is None:
        assert isinstance(header, dict)
        size = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + size)


def resized(header: Header, shapes: Mapping[str, list[int]]) -> Header:
    """A header whose tensors have other shapes, one after the other; new names are added."""
    at, changed = 0, {"__metadata__": header["__metadata__"]}
    for name in {**header, **shapes}:
        if name != "__metadata__":
            shape = shapes.get(name) or header[name]["shape"]
            size = 4 * int(torch.Size(shape).numel())
            changed[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
            at += size
    return changed


def first(header: Header) -> str:
    return next(name for name in header if name != "__metadata__")


@pytest.mark.parametrize("size", [2**26, 2**30, 2**36])
@pytest.mark.parametrize("added", [False, True])
def test_weights_that_do_not_fit_the_config_are_not_mapped(
    model: Path, unmapped: None, size: int, added: bool
) -> None:
    path = model / "model.safetensors"
    header = header_of(path)
    write_header(path, resized(header, {"more" if added else first(header): [size]}))
    with little_memory(ROOM), at_most(20), refuses(InputError, f"{path}: "):
        Translator.from_pretrained(model)


@pytest.mark.parametrize("name", ["config.yaml", "src.vocab.json"])
def test_weights_beside_a_file_that_was_changed_are_not_mapped(
    model: Path, unmapped: None, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(model_folder, "_SMALL", 0)  # those would be read, to see which file is damaged
    content = (model / name).read_bytes()
    (model / name).write_bytes(content + b"\n")
    with refuses(InputError, f"{model / name}: "):
        Translator.from_pretrained(model)


def test_weights_that_fit_and_are_larger_than_memory_are_refused_in_a_sentence(model: Path) -> None:
    path, text = model / "model.safetensors", (model / "config.yaml").read_text()
    (model / "config.yaml").write_text(text.replace("embedding_dim: 4\n", "embedding_dim: 60000000\n", 1))
    config = load_config(model / "config.yaml", bases=False)
    with torch.device("meta"):
        shapes = Translator.build(config, *load_vocabularies(model, config)).state_dict()
    header = header_of(path)
    facts = json.loads(header["__metadata__"]["caesura"])
    facts["files"]["config.yaml"] = checksum(model / "config.yaml")
    header["__metadata__"]["caesura"] = json.dumps(facts)
    write_header(path, resized(header, {name: [*value.shape] for name, value in shapes.items()}))
    assert path.stat().st_size > 4 * GIB
    with little_memory(GIB), at_most(20), pytest.raises(InputError) as caught:
        Translator.from_pretrained(model)
    assert str(caught.value).startswith(f"{path}: ")
    assert "4.7 GiB" in str(caught.value)


def changed(name: str, value: Any) -> Callable[[Header], Header]:
    return lambda header: header | {first(header): header[first(header)] | {name: value}}


HEADERS: dict[str, Callable[[Header], Header | bytes]] = {
    "a type that is not known": changed("dtype", "F128"),
    "a type that is no text": changed("dtype", ["F32"]),
    "a negative size": changed("shape", [-1, -5]),
    "a size that is no number": changed("shape", ["1", 5]),
    "a size that is a truth value": changed("shape", [True, 5]),
    "a size of many digits": changed("shape", [10**4000]),
    "a shape that is no list": changed("shape", 5),
    "a shape of many axes": changed("shape", [2**62] * 100_000),
    "one offset": changed("data_offsets", [0]),
    "offsets that overlap": changed("data_offsets", [4, 24]),
    "offsets from the end": changed("data_offsets", [-20, 0]),
    "no offsets": lambda header: header | {first(header): {"dtype": "F32", "shape": [1]}},
    "a gap": lambda header: {name: header[name] for name in header if name != first(header)},
    "metadata that is no mapping": lambda header: header | {"__metadata__": ["caesura"]},
    "facts that are no JSON": lambda header: header | {"__metadata__": {"caesura": "{"}},
    "facts that are deep": lambda header: header | {"__metadata__": {"caesura": "[" * 100_000}},
    "no mapping": lambda _: b"[1]",
    "deep": lambda _: b"[" * 1_000_000,
    "no JSON": lambda _: b"{",
    "no UTF-8": lambda _: b'{"\xff": 1}',
    "a name twice": lambda header: json.dumps(header).encode().replace(b'{"', b'{"a": 1, "a": 2, "', 1),
    "a long header": lambda header: json.dumps(header).encode() + b" " * tensors.MAX_HEADER,
}


@pytest.mark.parametrize("change", HEADERS)
def test_a_header_that_is_not_as_it_was_written_is_refused_and_nothing_mapped(
    model: Path, unmapped: None, change: str
) -> None:
    path = model / "model.safetensors"
    size = path.stat().st_size
    write_header(path, HEADERS[change](header_of(path)), size)
    with little_memory(ROOM), at_most(20), pytest.raises(DamagedError) as caught:
        read_header(path)
    assert str(caught.value).startswith(f"{path}: ")
    with pytest.raises(InputError):
        Translator.from_pretrained(model)


@pytest.mark.parametrize("length", [0, 1 << 30, 1 << 62, (1 << 64) - 1])
def test_the_length_of_a_header_is_not_believed(model: Path, unmapped: None, length: int) -> None:
    path = model / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(struct.pack("<Q", length) + content[8:])
    os.truncate(path, 1 << 33)
    with little_memory(ROOM), at_most(20), pytest.raises(InputError) as caught:
        Translator.from_pretrained(model)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["model", "optimizer.0.exp_avg", "random.cpu", "x"])
def test_a_checkpoint_with_tensors_of_another_size_is_not_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    translator = tiny_model(ACT).float()
    optimizer = Adam(translator.parameters())
    for parameter in translator.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    path = save_checkpoint(tmp_path, snapshot(translator, optimizer, Progress(update=3)), 2)
    header = header_of(path)
    name = first(header) if name == "model" else name
    assert (name in header) == (name != "x")
    assert load_checkpoint(path, translator, optimizer).update == 3
    write_header(path, resized(header, {name: [2**31]}))
    monkeypatch.setattr(tensors, "safe_open", None)
    with little_memory(ROOM), at_most(20), pytest.raises(DamagedError) as caught:
        load_checkpoint(path, translator, optimizer)
    assert str(caught.value).startswith(f"{path}: ")
    assert read_facts(path)["progress"]["update"] == 3


@pytest.mark.parametrize("number", [65, 10**9, 2**62])
def test_a_config_of_many_layers_is_refused_at_once(model: Path, number: int) -> None:
    text = (model / "config.yaml").read_text()
    (model / "config.yaml").write_text(
        text.replace("hidden_size: 3\n", f"hidden_size: 3\n    num_layers: {number}\n")
    )
    sign(model)
    with little_memory(ROOM), at_most(20), refuses(InputError, f"{model / 'config.yaml'}:"):
        Translator.from_pretrained(model)


ROWS = {
    "a list in brackets": "x: [" + "1," * 400_000 + "]\n",
    "a list of dashes": "x:\n" + "- 1\n" * 200_000,
    "unknown keys": "".join(f"k{i}: 1\n" for i in range(60_000)),
    "lists in a list": "x: [" + "[]," * 250_000 + "]\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ROWS)
def test_no_more_of_a_config_is_read_than_anyone_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    nodes = 0
    compose = yamlfile._Loader.compose_node

    def counted(self: yamlfile._Loader, *given: Any) -> Any:
        nonlocal nodes
        nodes += 1
        return compose(self, *given)

    monkeypatch.setattr(yamlfile._Loader, "compose_node", counted)
    path = tmp_path / "c.yaml"
    path.write_text(ROWS[kind])
    with little_memory(ROOM), refuses(InputError, f"{path}:") as caught:
        load_config(path)
    assert "\n" not in str(caught.value)
    assert nodes <= yamlfile.MAX_NODES + 2


def test_a_list_of_two_thousand_runs_is_read(tmp_path: Path) -> None:
    path = tmp_path / "list.yaml"
    path.write_text("- {a: 1, b: 2, c: 3, d: 4}\n" * 2000)
    assert len(yamlfile.read_list(path, "rows").tree["rows"]) == 2000


def test_a_vocabulary_of_more_tokens_than_can_be_is_neither_read_nor_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert vocabulary.MAX_TOKENS == 1_000_000
    for module in (vocabulary, vocabulary_file):
        monkeypatch.setattr(module, "MAX_TOKENS", 1000)
    monkeypatch.setattr(vocabulary_file, "Counter", None)  # none is looked at
    forge_vocabulary(model, kind="word", tokens=[*SPECIALS, *map(str, range(1000))])
    with refuses(InputError, f"{model / 'src.vocab.json'}: ", "1,000 "):
        load_vocabulary(model / "src.vocab.json")
    with refuses(InputError, "", "voc_limit"):
        WordVocabulary([*map(str, range(1000))]).save(tmp_path / "large.json")
    assert not (tmp_path / "large.json").exists()


MANY = b"[" + b"[]," * 12_000_000 + b"[]]"  # a gigabyte, once it is read


@pytest.mark.parametrize("name", ["src.vocab.json", journal.METRICS, "sweep.json"])
def test_json_of_many_values_is_refused_before_they_take_memory(model: Path, name: str) -> None:
    readers: dict[str, Callable[[Path], object]] = {
        "src.vocab.json": load_vocabulary,
        journal.METRICS: lambda path: journal.read_records(path.parent),
        "sweep.json": load,
    }
    path = model / name
    path.write_bytes(MANY)
    with little_memory(ROOM), at_most(20), pytest.raises(InputError) as caught:
        readers[name](path)
    assert str(caught.value).startswith(f"{path}: ")


def test_logs_of_a_stranger_are_read_in_part_or_not_at_all(model: Path) -> None:
    (model / journal.METRICS).write_bytes(b"\n" * (journal.MAX_LINES + 1))
    with refuses(InputError, f"{model / journal.METRICS}: "):
        journal.read_records(model)
    (model / journal.VALIDATIONS).write_bytes(b"seconds\tverdict\n" + b"1" * 200_000 + b"\tbest\n")
    assert training_seconds(model) is None
    (model / journal.VALIDATIONS).write_bytes(b"")
    os.truncate(model / journal.VALIDATIONS, 1 << 40)
    with little_memory(1 << 29):
        assert training_seconds(model) is None
    (model / "log").write_bytes(b"")
    os.truncate(model / "log", 1 << 40)
    assert len(files.read_tail(model / "log")) == 1 << 20


STRINGS = st.text(st.sampled_from('ab,[{}]:"\\\n\u20ac\x1b'), max_size=5)
TREES = st.recursive(
    st.one_of(st.none(), st.integers(), STRINGS),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=30,
)


def count(tree: Any) -> int:
    """Values, keys among them."""
    if isinstance(tree, dict):
        return 1 + len(tree) + sum(map(count, tree.values()))
    return 1 + (sum(map(count, tree)) if isinstance(tree, list) else 0)


def emptied(tree: Any) -> int:
    """Lists and mappings with nothing in them."""
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return (isinstance(tree, dict | list) and not tree) + sum(map(emptied, inner))


@given(TREES, st.booleans())
def test_values_of_json_are_counted_whatever_its_strings_hold(tree: Any, ascii_only: bool) -> None:
    content = json.dumps(tree, ensure_ascii=ascii_only).encode()
    marks = count(tree) - 1 + emptied(tree)
    assert parse_json(content, marks) == tree
    if marks:
        with pytest.raises(ValueError, match="more than"):
            parse_json(content, marks - 1)
