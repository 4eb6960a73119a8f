"""Model folders as a stranger might make them, drawn at random, and what the program may do with one."""

import json
import math
import os
import random
import shutil
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from cli.program import Done
from folders.hostile_ngrams import hostile_ngrams
from folders.test_bounds import HEADERS, ROWS, first, header_of, resized, write_header
from folders.test_strangers import DAMAGES, DESCRIPTION, FILES, forge_vocabulary, sign
from safetensors import SafetensorError

from caesura.data.tensors import load_tensors, save_tensors
from caesura.data.vocabulary import SPECIALS
from caesura.errors import InputError
from caesura.model_folder import CUTS_GRU, CUTS_NGRAMS, CUTS_VOCABULARY
from caesura.visible import LINE

OWNED = "\x1b]0;owned\x07\x9b2J\u202e\u2028"
TEXT = ["abc", "", "hgfedcba ☃", OWNED, "a" * 300]
Change = Callable[[Path, random.Random], None]
# What a change can meet where another one came before it.
SPOILT = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


def _damage(folder: Path, rng: random.Random) -> None:
    path = folder / rng.choice([*FILES, CUTS_NGRAMS, CUTS_GRU])
    path.write_bytes(DAMAGES[rng.choice([*DAMAGES])](path.read_bytes(), rng))


def _config(folder: Path, rng: random.Random) -> None:
    """Another value for a key, another key, or both."""
    path = folder / "config.yaml"
    rows = path.read_text().split("\n")
    values: list[Any] = [
        OWNED,
        "x" * 100_000,
        -1,
        10**6,
        10**9,
        2**62,
        10**40,
        1e308,
        None,
        True,
        [1],
        {"a": 1},
    ]
    at = rng.choice([i for i, row in enumerate(rows) if ": " in row])
    key = rows[at].split(":")[0]
    if rng.random() < 0.5:
        rows[at] = f"{key}: {json.dumps(rng.choice(values))}"
    else:
        indent = " " * (len(key) - len(key.lstrip()))
        rows.insert(at, f"{indent}{json.dumps(rng.choice([OWNED, 'k' * 100_000, 'tua', 'base', 'type']))}: 1")
    path.write_text("\n".join(rows))


def _rows(folder: Path, rng: random.Random) -> None:
    with (folder / "config.yaml").open("a") as file:
        file.write(ROWS[rng.choice([*ROWS])])


def _vocabulary(folder: Path, rng: random.Random) -> None:
    tokens = {
        "controls": [*"\x1b\x07\x9b\u202e\x85\u2028\r\t"],
        "twice": [*"abcdefg", OWNED, OWNED],
        "one long": [*"abcdefg", OWNED * 100_000],
        "many": [chr(0x4E00 + i) for i in range(50_000)],
        "none": [],
        "numbers": [1, 2, 3],
        "lone": [*"abcdefg\ud800"],
    }
    changes: list[dict[str, Any]] = [
        *({"tokens": [*SPECIALS, *symbols]} for symbols in tokens.values()),
        *({"kind": kind} for kind in ("word", "bpe", "wordpiece", "unigram", OWNED, None)),
        *({"merges": merges} for merges in ([["a", "b"]], [[]], OWNED)),
        *({"counts": counts} for counts in ([1], [-1] * 12, OWNED)),
    ]
    forge_vocabulary(folder, **rng.choice(changes))


def _deep(folder: Path, rng: random.Random) -> None:
    (folder / rng.choice(DESCRIPTION)).write_bytes(
        rng.choice([b"[", b'{"a":', b"[[],", b"{}", b'"']) * 200_000
    )


def _ngrams(folder: Path, rng: random.Random) -> None:
    hostile_ngrams(folder / CUTS_NGRAMS, rng)


def _gru(folder: Path, rng: random.Random) -> None:
    """Another header, other facts, or other weights with a checksum that is right."""
    path = folder / CUTS_GRU
    if rng.random() < 0.3:
        write_header(path, HEADERS[rng.choice([*HEADERS])](header_of(path)), path.stat().st_size)
        return
    tensors, facts = load_tensors(path)
    name = rng.choice([*tensors])
    value = rng.choice([0, 1, -1, 2**31 - 1, 1e30, math.nan, math.inf, -math.inf])
    with suppress(RuntimeError):  # no such whole number
        tensors[name].flatten()[rng.randrange(tensors[name].numel())] = value
    if rng.random() < 0.5:
        facts[rng.choice([*facts])] = rng.choice([0, 1, 1e308, math.nan, 10**400, OWNED, None, [1]])
    if rng.random() < 0.3:
        tensors[rng.choice([*tensors, OWNED])] = torch.zeros(rng.choice([0, 1, 1000]))
    save_tensors(path, tensors, facts)


def _header(folder: Path, rng: random.Random) -> None:
    path = folder / "model.safetensors"
    size = path.stat().st_size
    write_header(path, HEADERS[rng.choice([*HEADERS])](header_of(path)), size)


def _sparse(folder: Path, rng: random.Random) -> None:
    path = folder / "model.safetensors"
    header = header_of(path)
    name = rng.choice([first(header), "more", OWNED])
    write_header(path, resized(header, {name: [2 ** rng.randint(20, 36)]}))


def _facts(folder: Path, rng: random.Random) -> None:
    path = folder / "model.safetensors"
    header = header_of(path)
    facts = json.loads(header["__metadata__"]["caesura"])
    value = rng.choice([99, 10**400, OWNED, [], None, {"config.yaml": OWNED}])
    facts[rng.choice(["format", "version", "files", "sha256"])] = value
    header["__metadata__"]["caesura"] = json.dumps(facts)
    write_header(path, header)


def _replaced(folder: Path, rng: random.Random) -> None:
    """A pipe, a folder, a link, nothing or a terabyte in the place of a file."""
    path = folder / rng.choice([*FILES, CUTS_VOCABULARY, CUTS_NGRAMS, CUTS_GRU])
    path.unlink(missing_ok=True)
    kind = rng.randrange(6)
    if kind == 0:
        os.mkfifo(path)
    elif kind == 1:
        path.mkdir()
    elif kind == 2:
        path.symlink_to(rng.choice(["/dev/zero", folder.parent / "secret", path.name, "README.md"]))
    elif kind == 3:
        path.write_bytes(b"")
    elif kind == 4:
        path.write_bytes(b"{")
        os.truncate(path, 1 << 40)


# In an order in which one can follow another; those of many rows take long, and come seldom.
CHANGES: dict[str, Change] = {
    "ngrams": _ngrams,
    "gru": _gru,
    "damage": _damage,
    "config": _config,
    "rows": _rows,
    "vocabulary": _vocabulary,
    "deep": _deep,
    "facts": _facts,
    "header": _header,
    "sparse": _sparse,
    "replaced": _replaced,
}


def hostile_folder(originals: Sequence[Path], home: Path, rng: random.Random) -> tuple[Path, str]:
    """A folder below `home` with one to three changes, signed where it can be, and the names of all that."""
    folder = home / rng.choice(["model", OWNED, "[bold]x[/bold]", "two\nlines"])
    original = rng.choice(originals)
    shutil.copytree(original, folder)
    possible = [name for name in CHANGES if name != "rows" or rng.random() < 0.1]
    if (folder / CUTS_NGRAMS).exists():
        possible += ["ngrams"] * 4
    if (folder / CUTS_GRU).exists():
        possible += ["gru"] * 4
    else:
        possible.remove("gru")
    drawn = rng.sample(possible, rng.choice((1, 1, 2, 3)))
    names = [name for name in CHANGES if name in drawn]
    for name in names:
        with suppress(InputError, *SPOILT):
            CHANGES[name](folder, rng)
    if rng.random() < 0.7 and not {"sparse", "header", "replaced"} & {*names}:
        try:
            sign(folder)
            names.append("signed")
        except (InputError, SafetensorError, *SPOILT):
            names.append("unsigned")
    return folder, ", ".join([original.name, *names])


def listing(home: Path) -> dict[str, tuple[int, int]]:
    """All that is below a folder, with size and time of change."""
    paths = (Path(root) / name for root, folders, files in os.walk(home) for name in (*folders, *files))
    return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


def judge(done: Done) -> str:
    """How a command on a hostile folder ended, if it was a good end."""
    assert done.status in (0, 2), done
    lines = done.err.split("\n")[:-1]
    assert len(lines) <= 12, done
    for line in lines:
        assert len(line) < LINE + 200, done
        assert not {unicodedata.category(c) for c in line} & {"Cc", "Cs", "Zl", "Zp"}, done
        assert "\u202e" not in line, done
    if done.status == 0:
        assert len(done.lines) == len(TEXT), done
        return "translated"
    assert lines[0].startswith("caesura: "), done
    assert "Traceback" not in done.err, done
    return "refused"
