"""One typo in a source, whose meaning stays clear."""

import datetime
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from .spelling import Example, spell

_TRIES = 50


def with_typo(example: Example, language: str, alphabet: str, rng: random.Random) -> Example | None:
    """The example with one character dropped, replaced, or swapped with its neighbour; target unchanged.

    The replacement is from the alphabet. A typo that might spell another number (`six` to `dix`, 三 to 四) is
    not made; None if no other was found.
    """
    for _ in range(_TRIES):
        source, bounds = _edit(example, alphabet, rng)
        if (
            source not in ("", example.source)
            and source == source.strip()
            and not _plausible(source, language)
        ):
            return replace(example, source=source, bounds=bounds)
    return None


def _edit(example: Example, alphabet: str, rng: random.Random) -> tuple[str, tuple[int, ...]]:
    """Boundaries stay between the same characters; those that fall together or to an end are dropped."""
    text, bounds = example.source, example.bounds
    kind = rng.choice(("drop", "swap", "replace"))
    i = rng.randrange(len(text))
    if kind == "drop":
        kept = {bound - (bound > i) for bound in bounds} - {0, len(text) - 1}
        return text[:i] + text[i + 1 :], tuple(sorted(kept))
    if kind == "swap":
        return text[:i] + text[i : i + 2][::-1] + text[i + 2 :], bounds
    return text[:i] + rng.choice(alphabet) + text[i + 1 :], bounds


def _plausible(text: str, language: str) -> bool:
    """Whether morphs that may follow each other make up the text; true of every correct spell-out."""
    followers = _followers(language)
    seen: set[tuple[int, str]] = set()
    waiting = [(0, "")]
    while waiting:
        position, morph = waiting.pop()
        if position == len(text) and "" in followers[morph]:
            return True
        for follower in followers[morph]:
            state = (position + len(follower), follower)
            if follower and text.startswith(follower, position) and state not in seen:
                seen.add(state)
                waiting.append(state)
    return False


@lru_cache
def _followers(language: str) -> dict[str, frozenset[str]]:
    """Which morphs come after which; the empty morph is the start and the end."""
    after: defaultdict[str, set[str]] = defaultdict(set)
    for number, form in _probes():
        morphs = ("", *spell(number, language, form), "")
        for morph, follower in pairwise(morphs):
            after[morph].add(follower)
    return {morph: frozenset(followers) for morph, followers in after.items()}


def _probes() -> Iterator[tuple[int, str]]:
    """Numbers in which all neighbours meet: all small ones, and large ones with many zeros."""
    rng = random.Random(0)
    numbers = [*range(2000)]
    for digits in range(4, 10):
        for _ in range(1000):
            kept = rng.getrandbits(digits) | 1 << (digits - 1)
            numbers.append(sum(rng.randint(1, 9) * 10**i for i in range(digits) if kept >> i & 1))
    for number in numbers:
        yield number, "cardinal"
        yield number, "ordinal"
    for year in range(1, 3000):
        yield year, "year"
        yield 10_000 * year + 100 * rng.randint(1, 12) + rng.randint(1, 28), "date"
    for i in range(366):
        when = datetime.date(2000, 1, 1) + datetime.timedelta(i)
        yield int(when.strftime("%Y%m%d")), "date"
