"""The embedded corpus: numbers and dates spelled out, with gold morpheme boundaries and English translations.

A spell-out is a tuple of morphs whose concatenation is the string. A separator (space or hyphen) opens the
morph that follows it: `vingt|-et|-un`, `eine| Million`. Every form has its own wording (`im Jahr` marks a
German year), so a source has one translation whatever the forms in a corpus.
"""

from .corpus import HeldOut, make_corpus, split_of, write_corpus
from .morphs import boundaries
from .spelling import FORMS, LANGUAGES, Example, example, spell

__all__ = [
    "FORMS",
    "LANGUAGES",
    "Example",
    "HeldOut",
    "boundaries",
    "example",
    "make_corpus",
    "spell",
    "split_of",
    "write_corpus",
]
