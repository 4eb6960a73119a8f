"""`caesura analyze --only`: one kind of measurement, printed instead of a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from caesura.cli.options import Errors
from caesura.errors import InputError
from caesura.streams import print_json
from caesura.visible import one_line

if TYPE_CHECKING:
    from caesura.inference import Translator


def print_cuts(
    folder: Path,
    translator: Translator,
    files: tuple[str | None, str | None, str | None, str | None],
    moved: int,
    seed: int,
    as_json: bool,
    errors: Errors,
) -> None:
    """Measure the cuts, and print the results."""
    from caesura import terminal
    from caesura.analysis.cuts import measure_cuts
    from caesura.analysis.gold import read_gold
    from caesura.analysis.lines import name_of, read_text
    from caesura.analysis.training_text import training_text

    src, trg = text_files(translator, *files[:2], "dev")
    gold = None if files[2] is None else read_gold(files[2], errors)
    training = training_text(translator, folder, files[3], errors)
    translator.read_cuts(src)
    text, name = read_text(src, trg, errors, translator.config.testing.max_input), name_of(src)
    with terminal.stages(f"measuring the cuts of {folder}") as report:
        measures = measure_cuts(translator, text, name, moved, seed, report, gold, training.lines())
    if as_json:
        print_json({"model": str(folder), "text": name, **measures.record()})
    else:
        terminal.cuts(measures, f"the cuts of {folder} on {name}")


def print_robust(
    folder: Path,
    translator: Translator,
    files: tuple[str | None, str | None],
    sample: int,
    seed: int,
    as_json: bool,
    errors: Errors,
) -> None:
    """Translate some lines with typos and with several beams, and print the scores."""
    from caesura import terminal
    from caesura.analysis.lines import name_of, read_text
    from caesura.analysis.robust import measure_robust

    src, trg = text_files(translator, *files, "test")
    translator.read_cuts(src)
    text, name = [*read_text(src, trg, errors, translator.config.testing.max_input)], name_of(src)
    with terminal.stages(f"translating with {folder}") as report:
        measures = measure_robust(translator, text, name, sample, seed, report)
    if as_json:
        print_json({"model": str(folder), "text": name, "seed": seed, **measures.record()})
    else:
        terminal.say("\n".join(table.text() for table in measures.tables()))


def print_inside(
    folder: Path,
    translator: Translator,
    files: tuple[str | None, str | None, str | None],
    sample: int,
    seed: int,
    as_json: bool,
    errors: Errors,
) -> None:
    """Count segments, look at gates and attention, and translate a few lines."""
    from caesura import terminal
    from caesura.analysis.inside import inside_tables, measure_inside
    from caesura.analysis.lines import name_of, read_text
    from caesura.analysis.training_text import training_text

    src, trg = text_files(translator, *files[:2], "dev")
    training = training_text(translator, folder, files[2], errors)
    translator.read_cuts(src)
    text, name = read_text(src, trg, errors, translator.config.testing.max_input), name_of(src)
    with terminal.stages(f"looking inside {folder}") as report:
        record = measure_inside(translator, text, name, sample, training, seed, report).record()
    if as_json:
        print_json({"model": str(folder), "text": name, "seed": seed, **record})
    else:
        terminal.say("\n".join(table.text() for table in inside_tables({translator.config.name: record})))


def text_files(
    translator: Translator, src: str | None, trg: str | None, part: Literal["dev", "test"]
) -> tuple[str, str | None]:
    """The given files, or else those that the config names for a part of its data.

    A stranger's config may name anything, so the files that it names are printed.
    """
    from caesura.data.files import stored

    if src is not None:
        return src, trg
    if trg is not None:
        raise InputError(f"--trg is given without --src; give both, or neither for the config's data.{part}")
    text = translator.config.data.test if part == "test" else translator.config.data.dev
    if text is None:
        raise InputError(f"--src is missing, and the model's config names no data.{part}")
    files = [stored(path) for path in ([text] if isinstance(text, Path) else [text.src, text.trg])]
    for path in files:
        if not path.is_file():  # a device or a pipe might never end
            raise InputError(f"{path}: no file, but data.{part} of the model's config names it; give --src")
    names = " and ".join(map(str, files))
    print(one_line(f"{part} set named by the folder's config: {names}"), file=sys.stderr)
    return str(files[0]), str(files[1]) if len(files) > 1 else None
