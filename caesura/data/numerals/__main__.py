"""`python -m caesura.data.numerals --language de --out DIR` writes the corpus."""

import argparse
import sys
from collections.abc import Sequence

from caesura.errors import InputError
from caesura.streams import open_streams, outlive_readers

from .corpus import HeldOut, write_corpus
from .spelling import FORMS, LANGUAGES


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the corpus that the arguments ask for; 2 if they make no sense."""
    parser = argparse.ArgumentParser(
        prog="python -m caesura.data.numerals", description="Write a numerals corpus."
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--language", default="de", help=f"source language: {', '.join(LANGUAGES)}")
    parser.add_argument("--forms", default="cardinal", help=f"comma-separated: {','.join(FORMS)}")
    parser.add_argument("--size", type=int, default=20_000, metavar="N", help="training examples")
    parser.add_argument("--largest", type=int, default=99_999, metavar="N", help="largest number in training")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    for name, count in vars(HeldOut()).items():
        parser.add_argument(f"--{name}", type=int, default=count, metavar="N", help=f"{name} examples")
    given = parser.parse_args(arguments)
    held_out = HeldOut(given.dev, given.test, given.long, given.typo)
    try:
        paths = write_corpus(
            given.out, given.language, given.forms.split(","), given.size, given.largest, given.seed, held_out
        )
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    for path in paths.values():
        with path.open(encoding="utf-8") as lines:
            print(f"{path}\t{sum(1 for _ in lines)} examples")
    return 0


if __name__ == "__main__":
    open_streams()
    outlive_readers()
    sys.exit(main())
