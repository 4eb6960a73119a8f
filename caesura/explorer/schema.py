"""What the explorer's server takes and what it answers; /openapi.json is made from these models.

Offsets count the code points of a text exactly as it was sent. A gap lies between two symbols and has the
offset at which the second one starts. The place before </s> is not a gap: a sentence always ends there.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

RuleName = Literal["own", "characters", "words", "every", "entropy"]
Decision = Literal[-1, 0, 1]
BEAM = 10  # hypotheses of a sentence, at most


class _Request(BaseModel):
    """Unknown keys and values of another type are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Rule(_Request):
    """Where to cut: as the model does, or by a rule that does not depend on it."""

    name: RuleName = Field(default="own", description="own: the model decides")
    k: int | None = Field(default=None, ge=1, le=1000, description="for every: symbols per segment")


Cuts = Annotated[
    dict[int, Literal[1, -1]],
    Field(description="locks by offset: 1 cuts there, -1 does not, whatever the rule says"),
]
Rate = Annotated[
    float | None,
    Field(
        ge=1, le=100, allow_inf_nan=False, description="characters per segment, for a model with live_rate"
    ),
]
Beam = Annotated[
    int | None,
    Field(ge=1, le=BEAM, description="1 is greedy, for live use; null: as the model is configured"),
]


class SegmentRequest(_Request):
    """A sentence, and how it should be cut."""

    model: str = Field(description="one of the names of /api/models")
    text: str = Field(description="one sentence")
    rule: Rule = Field(default_factory=Rule)
    cuts: Cuts = Field(default_factory=dict)
    rate: Rate = None


class ExplainRequest(SegmentRequest):
    """A sentence to cut and translate."""

    reference: str | None = Field(default=None, description="a translation whose log-probability is wanted")
    beam: Beam = None
    layer: int | None = Field(
        default=None,
        ge=1,
        description="of the decoder, from 1: its attention is wanted; null: attention.shown",
    )
    head: int | None = Field(
        default=None, ge=1, description="of that layer, from 1; null: the mean over its heads"
    )


class FlipsRequest(SegmentRequest):
    """A sentence to cut, and the translation whose loss each flip changes."""

    target: str | None = Field(default=None, description="null: the model's own translation, greedy")
    long: bool = Field(default=False, description="true: allow more gaps than limits.flips")


class TranslateRequest(_Request):
    """Several sentences, with cuts for each of them or for none."""

    model: str = Field(description="one of the names of /api/models")
    texts: list[str]
    cuts: list[dict[int, Literal[1, -1]] | list[int] | None] | None = Field(
        default=None,
        description="per text: null for the model's own cuts; a list to cut there and nowhere else; or locks",
    )
    rate: Rate = None
    beam: Beam = None


class TrainingRequest(_Request):
    """A model whose training log is wanted."""

    model: str = Field(description="one of the names of /api/models")


class LiveRate(BaseModel):
    """A rate that can be changed without training."""

    target: float = Field(description="characters per segment that the model was trained for")


class Heads(BaseModel):
    """A decoder that attends with several heads in each layer."""

    layers: int
    heads: int = Field(description="of each layer")
    shown: int = Field(description="the layer whose mean over heads is shown unless another is asked for")


class Model(BaseModel):
    """A model that the server shows; with a `problem`, little else is known of it."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)  # every answer has all keys

    name: str
    version: str | None = Field(default=None, description="digest of the weights; null: there are none yet")
    kind: str = Field(default="", description="such as bigru ▸ cif ▸ weighted")
    level: str = Field(default="", description="what a source symbol is: char, byte, word, bpe, ...")
    scores: bool = Field(default=False, description="whether gaps have scores")
    sums_to: float | None = Field(
        default=None, description="the sum of scores at which a segment ends, where it is summed"
    )
    live_rate: LiveRate | None = None
    rules: list[RuleName] = Field(
        default=[], description="rules that it can follow; the first is the default"
    )
    takes_cuts: bool = Field(default=False, description="whether cuts can be moved at all")
    target_cuts: bool = Field(default=False, description="whether the decoder cuts what it writes")
    attention: Heads | None = Field(
        default=None, description="null: the decoder has no layers and heads to choose from"
    )
    running: bool = Field(description="whether a training is writing into the folder")
    history: bool = Field(description="whether /training has curves")
    examples: list[str] = []
    problem: str | None = Field(default=None, description="why the model cannot be asked now")


class Limits(BaseModel):
    """What one request may ask for."""

    characters: int = Field(description="of a text, at most")
    texts: int = Field(description="of /translate, at most")
    flips: int = Field(description="gaps of /flips, at most, unless long is set")


class ModelsAnswer(BaseModel):
    """All models, and what you can ask of them."""

    models: list[Model]
    limits: Limits


class _Answer(BaseModel):
    """Every answer names the weights that gave it."""

    model: str
    version: str | None


class Gap(BaseModel):
    """A place between two symbols."""

    offset: int
    cut: bool
    score: float | None = Field(
        description="of the symbol before the gap, 0 to 1; null: the model has none; "
        "where entropy cuts, 1 / (1 + 2^-d), d bits above the threshold"
    )
    locked: Decision = Field(description="1 or -1 where the request said so")


class Segmented(BaseModel):
    """Where a text is cut; a cut between the bytes of a character is shown after it."""

    symbols: list[str] = Field(description="those of the model; for bytes, characters")
    offsets: list[int] = Field(description="where each symbol starts")
    gaps: list[Gap]
    pieces: list[str] = Field(description="joined, they give the text")
    segment_length: float | None = Field(description="characters per segment; null: nothing was read")
    unknown: list[int] = Field(description="offsets of symbols that the vocabulary lacks")


class SegmentAnswer(_Answer, Segmented):
    """The answer of /segment."""


class Scored(BaseModel):
    """A translation and the natural logarithm of its probability, </s> included."""

    text: str
    log_probability: float | None = Field(description="null: the probability is 0, as with an empty source")


class Written(BaseModel):
    """The translation as the decoder wrote it."""

    symbols: list[str]
    offsets: list[int] = Field(description="where each symbol starts in the translation")
    pieces: list[str] | None = Field(description="where the decoder cut it; null: it does not cut")
    finished: bool = Field(description="false: it reached the length limit first")


class ExplainAnswer(_Answer):
    """The answer of /explain: cuts, translation, attention and the running sum of the scores, in one pass."""

    segmentation: Segmented
    translation: str
    log_probability: float | None
    reference: Scored | None
    output: Written
    attention: list[list[float]] | None = Field(
        description="per output symbol, and once more for </s> if finished: the weight of each piece, and of "
        "</s> where it is a segment of its own; null: the decoder has none"
    )
    halting: list[float] | None = Field(description="per source symbol, the sum that ends a segment")
    milliseconds: float


class TranslateAnswer(_Answer):
    """The answer of /translate."""

    translations: list[Scored]


class FlipsAnswer(_Answer):
    """The answer of /flips. Losses are in nats per target symbol, </s> included."""

    base: float = Field(description="the loss with the cuts as they are")
    target: str
    offsets: list[int] = Field(description="of the gaps")
    changes: list[float | None] = Field(
        description="what flipping each gap adds to the loss; negative: it helps; null: the cut stays"
    )
    gradient: list[float | None] = Field(
        description="what the gradient with respect to the gap's score predicts, signed like changes; "
        "null: the model has none"
    )
    best: int | None = Field(description="offset of the flip that helps most; null: none helps")


class TrainingAnswer(_Answer):
    """The answer of /training."""

    running: bool
    update: int | None = Field(description="the newest one in the log")
    shown: int | None = Field(
        description="update of the checkpoint that answers while the training runs; null: the best weights do"
    )
    curves: dict[str, list[tuple[float, float]]] = Field(description="by name: pairs of update and value")


class Problem(BaseModel):
    """What is wrong, and with which key of the request."""

    message: str
    field: str | None = None


class ErrorAnswer(BaseModel):
    """Any answer whose status is 400 or higher."""

    error: Problem
