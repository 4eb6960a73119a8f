"""Translation scores, each with sacrebleu's signature: BLEU, chrF2, chrF of order 2, exact match."""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from caesura.errors import InputError
from caesura.evaluation.ngrams import LineNgrams, Shared, characters, shared_ngrams, words

WORDLESS = 20  # chrF2 from which on a BLEU of 0 is suspicious; a model at the start of training has less
TOKENISED = 100  # lines that end in a period of its own: sacrebleu's sign of tokenised text


@cache
def _warn_of_tokenised_text() -> None:
    """Only once: there are many scores of one text."""
    logging.getLogger(__name__).warning(
        f"{TOKENISED} translations or more end in ' .', as tokenised text does, and BLEU tokenises it "
        "again; if yours is tokenised, --set testing.bleu_tokenize=none"
    )


@dataclass(frozen=True)
class Scores:
    """Scores of one system; BLEU and chrF run from 0 to 100 as in sacrebleu (the paper prints chrF / 100)."""

    bleu: float
    chrf: float  # chrF2: beta 2, character order 6
    chrf_bigram: float  # beta 2, character order 2
    exact: float  # share of lines equal to their reference, 0 to 1
    signatures: dict[str, str]  # for "bleu", "chrf" and "chrf_bigram", led by the name as sacrebleu prints it
    sentences: int


@dataclass(frozen=True)
class Resampled:
    """One metric of one system under bootstrap resampling: mean ± interval is the 95% confidence interval."""

    score: float
    mean: float
    interval: float
    p_value: float | None  # against the baseline; None for the baseline itself


@dataclass(frozen=True)
class Comparison:
    """One system beside the baseline."""

    bleu: Resampled
    chrf: Resampled  # chrF2, order 6
    signatures: dict[str, str]


def score(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False
) -> Scores:
    """Scores one system's lines against one reference each.

    `tokenize="none"` means text that is tokenised already; `lowercase` holds for exact match too.
    """
    _check(hypotheses, references)
    if tokenize != "none" and sum(line.endswith(" .") for line in hypotheses) >= TOKENISED:
        _warn_of_tokenised_text()
    metrics: dict[str, Metric] = {
        "bleu": bleu_metric(tokenize, lowercase),
        "chrf": CHRF(lowercase=lowercase),
        "chrf_bigram": CHRF(char_order=2, lowercase=lowercase),
    }
    shared = shared_characters(hypotheses, references, lowercase).sums()
    pairs = zip(hypotheses, references, strict=True)
    equal = sum(h.lower() == r.lower() if lowercase else h == r for h, r in pairs)
    return Scores(
        bleu=bleu_of(shared_words(hypotheses, references, tokenize, lowercase).sums()),
        chrf=chrf_of(shared),
        chrf_bigram=chrf_of(shared[:2]),
        exact=equal / len(references),
        signatures={key: _signature(metric) for key, metric in metrics.items()},
        sentences=len(references),
    )


def wordless(bleu: float, chrf: float) -> str:
    """A warning where translations share many characters with their references, but no word; else nothing."""
    if bleu or chrf < WORDLESS:
        return ""
    return (
        f"BLEU is 0 where chrF2 is {chrf:.1f}: translations share characters with their references, but no "
        "word; if BLEU's tokenizer does not fit the language, set testing.bleu_tokenize"
    )


# Sacrebleu counts n-grams in seconds, and validations are many; `shared_ngrams` counts the same at once.


def shared_words(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a", lowercase: bool = False
) -> LineNgrams:
    """The n-grams that BLEU counts: 1 to 4 words of its tokenizer."""
    metric = bleu_metric(tokenize, lowercase)
    return shared_ngrams(_tokenised(metric, hypotheses), _tokenised(metric, references), words, order=4)


def bleu_of(shared: Sequence[Shared]) -> float:
    """BLEU from sums over lines, smoothed as sacrebleu does by default."""
    metric = bleu_metric("13a", False)
    counts = [one.matched for one in shared], [one.written for one in shared]
    lengths = shared[0].written, shared[0].expected
    return float(metric.compute_bleu(*counts, *lengths, metric.smooth_method, metric.smooth_value).score)


def _tokenised(metric: BLEU, lines: Sequence[str]) -> list[str]:
    """Lines as BLEU tokenises them, except for the number of spaces.

    13a first puts spaces around a space, so that it takes each word by itself; and words come again.
    """
    cased = [(line.lower() if metric.lowercase else line).rstrip() for line in lines]
    if metric.tokenizer.signature() != "13a":
        return [metric.tokenizer(line) for line in cased]
    return [" ".join(map(metric.tokenizer, line.split(" "))) for line in cased]


def shared_characters(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> LineNgrams:
    """The n-grams that chrF counts: 1 to 6 characters, without white space."""

    def bare(line: str) -> str:
        return "".join((line.lower() if lowercase else line).split())

    return shared_ngrams([*map(bare, hypotheses)], [*map(bare, references)], characters, order=6)


def chrf_of(shared: Sequence[Shared]) -> float:
    """The F-score with beta 2 of means over the orders that both sides have n-grams of."""
    factor = 2**2
    judged = [one for one in shared if one.judged and one.expected]
    precision = recall = 0.0  # `sum` would round otherwise than sacrebleu
    for one in judged:
        precision += one.matched / one.judged
        recall += one.matched / one.expected
    if not precision:
        return 0.0
    precision, recall = precision / len(judged), recall / len(judged)
    return 100 * ((1 + factor) * precision * recall / (factor * precision + recall))


def _signature(metric: Metric) -> str:
    """Led by the name, which alone has chrF's beta; sacrebleu knows it when a line has been scored."""
    name = metric.corpus_score(["a"], [["a"]]).name
    return f"{name}|{metric.get_signature()}"


def paired_bootstrap(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = 1000,
    seed: int = 12345,
) -> dict[str, Comparison]:
    """Compares each system with the first by sacrebleu's paired bootstrap; the first has no p-value.

    One deviation: a system whose score equals the first one's gets p = 1. Sacrebleu gives 1 / (samples + 1)
    to a copy of the first system, which reads as a significant difference of nothing.
    """
    if not systems:
        raise InputError("no systems to compare")
    for name, hypotheses in systems.items():
        _check(hypotheses, references, f"system {name!r}: ")
    if samples < 1:
        raise InputError(f"{samples} bootstrap samples; at least 1 is needed")
    if seed < 1:  # sacrebleu takes seed 0 for "no seed" in the paired test
        raise InputError(f"bootstrap seed {seed}; it must be 1 or more")
    metrics = {"BLEU": bleu_metric(tokenize, lowercase), "chrF2": CHRF(lowercase=lowercase)}
    with _sacrebleu_seed(seed):
        test = PairedTest(
            list(systems.items()), metrics, [references], test_type="bs", n_samples=samples, n_jobs=1
        )
        metric_signatures, table = test()
    signatures = {"bleu": f"BLEU|{metric_signatures['BLEU']}", "chrf": f"chrF2|{metric_signatures['chrF2']}"}
    bleu, chrf = _resampled(table["BLEU"]), _resampled(table["chrF2"])
    rows = zip(systems, bleu, chrf, strict=True)
    return {name: Comparison(bleu=b, chrf=c, signatures=dict(signatures)) for name, b, c in rows}


@cache
def bleu_metric(tokenize: str, lowercase: bool, effective_order: bool = False) -> BLEU:
    """One metric per setting: its tokenizer caches lines, and the words of translations recur."""
    if tokenize not in BLEU.TOKENIZERS:
        raise InputError(f"unknown tokenizer {tokenize!r}; known: {', '.join(BLEU.TOKENIZERS)}")
    try:
        # `force`: we warn of tokenised text ourselves, and name the setting that it needs.
        return BLEU(tokenize=tokenize, lowercase=lowercase, force=True, effective_order=effective_order)
    except (RuntimeError, ImportError, OSError) as error:  # a tokenizer with a package or model of its own
        raise InputError(
            f"tokenizer {tokenize!r} cannot be loaded: {' '.join(str(error).split())}"
        ) from error


def _check(hypotheses: Sequence[str], references: Sequence[str], where: str = "") -> None:
    if len(hypotheses) != len(references):
        raise InputError(f"{where}{len(hypotheses)} translations but {len(references)} references")
    if not references:
        raise InputError(f"{where}no lines to score")


@contextmanager
def _sacrebleu_seed(seed: int) -> Iterator[None]:
    """Sacrebleu reads its seed from the environment only; the value before is restored afterwards."""
    before = os.environ.get("SACREBLEU_SEED")
    os.environ["SACREBLEU_SEED"] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ["SACREBLEU_SEED"]
        else:
            os.environ["SACREBLEU_SEED"] = before


def _resampled(column: Sequence[str | Result]) -> list[Resampled]:
    results = [result for result in column if isinstance(result, Result)]
    rows = []
    for result in results:
        assert result.mean is not None  # the bootstrap always sets both
        assert result.ci is not None
        p_value = result.p_value
        if p_value is not None and result.score == results[0].score:
            p_value = 1.0
        rows.append(Resampled(float(result.score), float(result.mean), float(result.ci), p_value))
    return rows
