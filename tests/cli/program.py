"""The program as its users run it, and a small corpus to run it on."""

import io
import os
import pty
import random
import shutil
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO
from unittest import mock

from caesura.cli.program import main
from caesura.config import load_config
from caesura.inference import Translator

GERMAN = ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"]
ENGLISH = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]

AT_ONCE = "0.000001s"  # a --time-limit that is over before the first update

SYSTEMS = {
    "char": ("char", "{type: lookup, embedding_dim: 12}"),
    "act": ("char", "{type: act, tau: 0.1, embedding_dim: 8, act_size: 12, output_dim: 12}"),
    "act-act": ("char", "{type: act, tau: 0.1, embedding_dim: 12, act_size: 12, output_dim: 12}"),
    "word": ("word", "{type: lookup, embedding_dim: 12}"),
    "bpe": ("bpe, voc_limit: 48", "{type: lookup, embedding_dim: 12}"),
}
DECODERS = {
    "act-act": "{type: act, tau: 0.1, embedding_dim: 12, hidden_size: 24, act_size: 12, attention_size: 12}",
}
DECODER = "{type: recurrent, embedding_dim: 12, hidden_size: 24, attention_size: 12}"
CONFIG = """\
name: {system}
data:
  train: {{src: {folder}/train.de, trg: {folder}/train.en}}
  dev: {{src: {folder}/dev.de, trg: {folder}/dev.en}}
  src: {{lang: de, level: {level}}}
  trg: {{lang: en, level: {level}}}
model:
  segmenter: {segmenter}
  encoder: {{type: recurrent, hidden_size: 12}}
  decoder: {decoder}
training:
  batch_size: 10
  learning_rate: 1e-2
  validation_freq: 200
  updates: 60
  device: cpu
  threads: 1
testing: {{batch_size: 4, max_input: 200, max_output_extra: 4}}
"""


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The lines of standard output, each of which has to be ended."""
        assert self.out == "" or self.out.endswith("\n")
        return self.out.split("\n")[:-1]


def caesura(*arguments: object, stdin: bytes | TextIO = b"") -> Done:
    """Run the command line in this process, which spares the seconds that importing torch takes."""
    # The locale's encoding may be anything; the program has to write UTF-8.
    kinds = {"stdout": ("ascii", "strict"), "stderr": ("utf-8", "backslashreplace")}
    streams = {name: io.TextIOWrapper(io.BytesIO(), *kind, newline="\n") for name, kind in kinds.items()}
    source = io.TextIOWrapper(io.BytesIO(stdin), "utf-8") if isinstance(stdin, bytes) else stdin
    given = ["caesura", *map(str, arguments)]
    with mock.patch.multiple(sys, argv=given, stdin=source, **streams):
        try:
            main()
        except SystemExit as end:
            status = end.code
    for stream in streams.values():
        stream.flush()
    out, err = (stream.buffer.getvalue().decode(errors="surrogateescape") for stream in streams.values())
    assert isinstance(status, int)
    return Done(status, out, err)


def at_terminal(*arguments: object, stdin: bytes = b"") -> Done:
    """The same at a terminal, whose line ends are taken off again; all that is printed is in `out`."""
    ours, theirs = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        with suppress(OSError):  # the other end is closed
            while chunk := os.read(ours, 1 << 16):
                chunks.append(chunk)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    source, given = io.TextIOWrapper(io.BytesIO(stdin), "utf-8"), ["caesura", *map(str, arguments)]
    with (
        open(theirs, "w", encoding="utf-8") as out,
        open(os.dup(theirs), "w", encoding="utf-8") as err,
        mock.patch.multiple(sys, argv=given, stdin=source, stdout=out, stderr=err),
    ):
        try:
            main()
        except SystemExit as end:
            status = end.code
    reader.join(60)
    assert not reader.is_alive()
    os.close(ours)
    assert isinstance(status, int)
    return Done(status, b"".join(chunks).decode().replace("\r\n", "\n"), "")


def command(*arguments: object) -> list[str]:
    """The command line of a process of its own."""
    return [sys.executable, "-m", "caesura.cli", *map(str, arguments)]


def refusal(done: Done, status: int = 2, answered: int = 0) -> str:
    """What a refused command said: one sentence on the error stream, after `answered` lines of output."""
    assert done.status == status, done.err
    assert len(done.lines) == answered
    assert done.err.startswith("caesura: ")
    assert done.err.endswith("\n")
    assert done.err.count("\n") == 1, done.err
    return done.err.removeprefix("caesura: ").rstrip("\n")


def write_corpus(folder: Path, train: int = 60, dev: int = 12, digits: int = 3) -> None:
    """Write train.de, train.en, dev.de and dev.en: up to so many digits in words per line.

    More than three are needed for a BLEU above 0, which counts four words in a row.
    """
    rng = random.Random(1)
    for name, count in (("train", train), ("dev", dev)):
        drawn = [[rng.randrange(9) for _ in range(rng.randint(1, digits))] for _ in range(count)]
        for language, words in (("de", GERMAN), ("en", ENGLISH)):
            lines = (" ".join(words[i] for i in digits) + "\n" for digits in drawn)
            (folder / f"{name}.{language}").write_text("".join(lines), encoding="utf-8")


def write_config(path: Path, system: str = "char", folder: Path | None = None) -> Path:
    """Write a config for the corpus in `folder`, by default the config's own."""
    level, segmenter = SYSTEMS[system]
    values = {"system": system, "level": level, "segmenter": segmenter, "folder": folder or path.parent}
    path.write_text(CONFIG.format(**values, decoder=DECODERS.get(system, DECODER)), encoding="utf-8")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def with_config(folder: Path, other: Path, old: str, new: str) -> None:
    """A copy of a model folder with another config, saved as one."""
    shutil.copytree(folder, other)
    path = other / "config.yaml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    model = Translator.from_pretrained(folder)
    model.config = load_config(path)
    model.save_pretrained(other)
