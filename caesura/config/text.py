"""The sections of a config that say what the text is and how it is read."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from caesura.config.phrasing import nearest
from caesura.config.yamlfile import show
from caesura.visible import HALVES

Level = Literal["char", "byte", "word", "bpe", "wordpiece"]
WITH_BYTES = 4 + 256  # symbols: the specials and the bytes
MOST_PIECES = 1_000_000  # of a vocabulary: memory for all is taken before the first is learned


def wrong(key: str, message: str, *others: str) -> PydanticCustomError:
    """A rule of our own, broken at `key` of the section being checked ("" for the value itself).

    It is reported at one of the `others` if only that was set on the command line.
    """
    return PydanticCustomError("rule", "{message}", {"key": key, "message": message, "others": others})


def _file(path: Path) -> Path:
    if not path.name:
        raise wrong("", "a file name is wanted")
    if HALVES.search(str(path)):
        raise wrong("", f"the name {str(path)!a} is not UTF-8, so no config can hold it; rename it")
    return path


def _table(path: Path) -> Path:
    if not re.search(r"\.tsv(\.gz|\.xz|\.zst)?$", path.name):
        raise wrong("", f"'{path.name}' is not a .tsv; for two text files write {{src: FILE, trg: FILE}}")
    return _file(path)


def _corpus_kind(value: Any) -> str | None:
    if isinstance(value, Mapping | Files):
        return "<files>"
    return "<table>" if isinstance(value, str | Path) else None


class Section(BaseModel):
    """One mapping of the file; unknown keys and near-miss types are refused, an empty one is its defaults."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _empty(cls, value: Any) -> Any:
        return {} if value is None else value


TextFile = Annotated[Path, Field(strict=False), AfterValidator(_file)]
TableFile = Annotated[Path, Field(strict=False), AfterValidator(_table)]


class Files(Section):
    """Parallel text as two files, line by line."""

    src: TextFile = Field(description="source sentences, one per line; plain, .gz, .xz or .zst")
    trg: TextFile = Field(description="their translations, line by line")


Corpus = Annotated[
    Annotated[Files, Tag("<files>")] | Annotated[TableFile, Tag("<table>")], Discriminator(_corpus_kind)
]


class Side(Section):
    """How one language's text becomes symbols."""

    lang: str = Field(min_length=1, description="language code, such as de")
    level: Level = Field(description="what a symbol is: char, byte (of UTF-8), word, bpe or wordpiece")
    voc_limit: int | None = Field(
        default=None, ge=5, description="largest vocabulary, the 4 special symbols included; null: all"
    )
    max_length: int | None = Field(
        default=None,
        ge=1,
        description="longest training sentence in symbols, longer pairs are dropped; null: 5000",
    )
    byte_fallback: bool = Field(
        default=False, description="for level char: characters without a symbol become their bytes, not <unk>"
    )

    @model_validator(mode="after")
    def _subwords_need_a_size(self) -> "Side":
        if self.level in ("bpe", "wordpiece") and self.voc_limit is None:
            raise wrong("voc_limit", f"level {self.level} needs a vocabulary size, such as 15000")
        if self.level in ("bpe", "wordpiece") and (self.voc_limit or 0) > MOST_PIECES:
            raise wrong("voc_limit", f"{self.voc_limit} is too large; at most {MOST_PIECES}")
        return self

    @model_validator(mode="after")
    def _bytes_have_room(self) -> "Side":
        if self.level == "byte" and self.voc_limit is not None:
            raise wrong("voc_limit", f"level byte always has {WITH_BYTES} symbols; remove it")
        if self.byte_fallback and self.level != "char":
            what = "has all bytes already" if self.level == "byte" else "has no bytes"
            raise wrong("byte_fallback", f"is for level char; level {self.level} {what}; remove it")
        if self.byte_fallback and self.voc_limit is not None and self.voc_limit <= WITH_BYTES:
            reason = f"{WITH_BYTES} symbols are the specials and the bytes of byte_fallback"
            raise wrong("voc_limit", f"{self.voc_limit} leaves no room for characters: {reason}")
        return self


class RuleCuts(Section):
    """Cuts of the source by what its characters are."""

    type: Literal["characters", "whitespace", "punctuation"] = Field(description="which characters cut")
    characters: str = Field(default="", description="for type characters: those to cut at")
    side: Literal["before", "after"] = Field(default="before", description="where they cut")
    most: int | None = Field(default=None, ge=1, description="longest segment in characters; null: any")

    @model_validator(mode="after")
    def _characters_are_named(self) -> "RuleCuts":
        if (self.type == "characters") != bool(self.characters):
            missing, other = "needs at least one", f"is for type characters, not {self.type}"
            what = other if self.characters else missing
            raise wrong("characters", what)
        return self


class SymbolCuts(Section):
    """Cuts at the ends of symbols learned from the source, while the model reads characters."""

    type: Literal["bpe", "unigram", "wordpiece"] = Field(description="what the symbols are")
    voc_limit: int = Field(ge=5, le=MOST_PIECES, description="how many symbols there are")


_ENTROPY_OPTIONS = {"ngram": {"order": 6}, "gru": {"size": 256, "updates": 1000}}


class EntropyCuts(Section):
    """Cuts before characters that are hard to predict, by a model of the source's characters."""

    type: Literal["entropy"] = Field(description="how uncertain the next character is")
    target: float = Field(ge=1, description="characters per segment, on the training text")
    model: Literal["ngram", "gru"] = Field(default="ngram", description="what predicts characters")
    order: int | None = Field(
        default=None, ge=2, le=16, description="for model ngram: characters of the longest n-grams; null: 6"
    )
    size: int | None = Field(
        default=None, ge=1, le=512, description="for model gru: numbers in its state; null: 256"
    )
    updates: int | None = Field(
        default=None, ge=1, description="for model gru: how long it is trained; null: 1000"
    )
    by: Literal["global", "rise"] = Field(
        default="global",
        description="what a threshold is for: the entropy, or its rise from the character before",
    )

    @model_validator(mode="before")
    @classmethod
    def _options_of_the_model(cls, value: Any) -> Any:
        """Fill in the options of its model, and refuse those of the other one."""
        if not isinstance(value, Mapping) or value.get("model", "ngram") not in ("ngram", "gru"):
            return value
        kind = value.get("model", "ngram")
        for key in (key for other in _ENTROPY_OPTIONS if other != kind for key in _ENTROPY_OPTIONS[other]):
            if value.get(key) is not None:
                raise wrong(key, f"is not an option of model {kind}; remove it")
        options = _ENTROPY_OPTIONS[kind].items()
        return {**value, **{key: default for key, default in options if value.get(key) is None}}


class AlignmentCuts(Section):
    """Cuts of the training text where the aligned word of the target changes; to be imitated."""

    type: Literal["alignment"] = Field(description="where the translation goes on with another word")
    target: float = Field(ge=1, description="characters per segment, on the training text")
    voc_limit: int = Field(default=500, ge=5, le=2000, description="how many source symbols are aligned")


class FileCuts(Section):
    """Cuts from files of character offsets, one line per sentence."""

    type: Literal["file"] = Field(description="offsets separated by spaces")
    train: TextFile = Field(description="offsets for the training text")
    dev: TextFile | None = Field(default=None, description="offsets for the dev set; null: with imitation")
    test: TextFile | None = Field(default=None, description="offsets for the test set")


_CUTS = {
    kind: section
    for section in (RuleCuts, SymbolCuts, EntropyCuts, AlignmentCuts, FileCuts)
    for kind in get_args(section.model_fields["type"].annotation)
}


def _known_cuts(value: Any) -> Any:
    """Refuse cuts of no type, or of an unknown one, before a union of all types does it with other words."""
    if isinstance(value, tuple(_CUTS.values())):
        return value
    if not isinstance(value, Mapping):
        raise wrong("", f"{show(value)} is not a section such as {{type: whitespace}}")
    kinds = ", ".join(_CUTS)
    if "type" not in value:
        raise wrong("type", f"missing: one of {kinds}")
    if value["type"] not in list(_CUTS):  # a list: it may be unhashable
        guess = nearest(str(value["type"]), _CUTS)
        meant = f"; did you mean '{guess}'?" if guess else ""
        raise wrong("type", f"{show(value['type'])} is not one of {kinds}{meant}")
    return value


def _cuts_kind(value: Any) -> str:
    section = _CUTS[value["type"]] if isinstance(value, Mapping) else type(value)
    return f"<{section.__name__}>"


SourceCuts = Annotated[
    Annotated[RuleCuts, Tag("<RuleCuts>")]
    | Annotated[SymbolCuts, Tag("<SymbolCuts>")]
    | Annotated[EntropyCuts, Tag("<EntropyCuts>")]
    | Annotated[AlignmentCuts, Tag("<AlignmentCuts>")]
    | Annotated[FileCuts, Tag("<FileCuts>")],
    Discriminator(_cuts_kind),
    BeforeValidator(_known_cuts),
]


class Data(Section):
    """The text and how it is read; relative paths start from the folder of the file they are written in."""

    train: Corpus = Field(description="{src: FILE, trg: FILE} or one FILE.tsv; plain, .gz, .xz or .zst")
    dev: Corpus = Field(
        description="held-out text, translated at each validation: {src: FILE, trg: FILE} or one FILE.tsv"
    )
    test: Corpus | None = Field(
        default=None,
        description="test text, for the final scores; training does not use it",
    )
    src: Side = Field(description="the source side")
    trg: Side = Field(description="the target side")
    cuts: SourceCuts | None = Field(
        default=None,
        description="given ends of source segments, see below; null: the model decides alone",
    )
    joint: bool = Field(default=False, description="one subword vocabulary for both sides")
    max_chars: int | None = Field(
        default=None,
        ge=1,
        description="longest training sentence on either side, in characters at every level; null: any",
    )
    errors: Literal["strict", "replace"] = Field(
        default="strict", description="bytes that are not UTF-8: stop, or �"
    )

    @model_validator(mode="after")
    def _symbols_are_cut_from_characters(self) -> "Data":
        learnt = SymbolCuts | EntropyCuts | AlignmentCuts
        if isinstance(self.cuts, learnt) and self.src.level not in ("char", "byte"):
            level = f"data.src.level: char or byte, not {self.src.level}"
            raise wrong("cuts", f"type {self.cuts.type} needs {level}")
        return self

    @model_validator(mode="after")
    def _joint_sides_agree(self) -> "Data":
        if self.joint and self.src.level not in ("bpe", "wordpiece"):
            raise wrong("joint", f"only bpe and wordpiece can be joint, not {self.src.level}")
        if self.joint and (self.src.level, self.src.voc_limit) != (self.trg.level, self.trg.voc_limit):
            raise wrong("joint", "src and trg must have the same level and voc_limit")
        return self
