"""Model cards of a recipe, kept beside its tables even where the models are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from caesura.config import load_config
from caesura.data.files import write_whole
from caesura.experiments.outcome import Outcome, figures_of
from caesura.experiments.provenance import described, made_by, without_folders
from caesura.experiments.recipe import RecipeSystem
from caesura.experiments.result_tables import ending
from caesura.experiments.results import SystemResult, kept_metrics
from caesura.model_folder import CONFIG, WEIGHTS
from caesura.segmenters.figures import LIVE, Figure
from caesura.terminal import duration
from caesura.training.card import figures, introduction
from caesura.training.journal import renamed

_LIMITS = """\
A model for research. It knows one text: what differs from it in subject, style, spelling or length it
translates worse, often wrongly and fluently, and nothing in the output says so. It has that text's leanings.
It is not for uses in which a wrong translation does harm. Its segments are those that its loss asked for, not
morphemes. The text has terms of its own, which may bind its models too."""


def keep_cards(out: Path, results: Sequence[SystemResult], about: Callable[[list[str]], list[str]]) -> None:
    """Write cards/NAME.md for the best finished seed of each system; a card outlives its model folder."""
    for result in results:
        best = result.best
        if best is not None and best.trained and best.start and (best.member.folder / WEIGHTS).exists():
            path = _path(out, result.system)
            path.parent.mkdir(exist_ok=True)
            write_whole(path, _card(out, result, best, about([result.system.text])).encode(errors="replace"))


def links(out: Path, results: Sequence[SystemResult]) -> str:
    """A line of Markdown that leads from the table to the cards that there are."""
    cards = [(r.system.title, path) for r in results if (path := _path(out, r.system)).exists()]
    listed = ", ".join(f"[{title}]({path.relative_to(out).as_posix()})" for title, path in cards)
    return f"Cards, each of the seed that did best on dev: {listed}." if cards else ""


def _path(out: Path, system: RecipeSystem) -> Path:
    return out / "cards" / f"{system.name.replace(' ', '_')}.md"


def _card(out: Path, result: SystemResult, outcome: Outcome, about: Sequence[str]) -> str:
    member, best, start = outcome.member, outcome.best or {}, outcome.start or {}
    config = load_config(member.folder / CONFIG, bases=False)
    text = described(config)["data"]["train"]
    files = ", ".join(f"`{name}`" for name in (text.values() if isinstance(text, dict) else [text]))
    seeds = [str(seed) for seed, other in result.outcomes.items() if other.trained and other.best]
    chosen = f" (of {', '.join(seeds)} the best on dev)" if len(seeds) > 1 else ""
    beside = f", up to {outcome.side_by_side} processes side by side" if outcome.side_by_side > 1 else ""
    log, place = kept_metrics(out, member).relative_to(out).as_posix(), without_folders(str(member.folder))
    parts = [
        f"# {result.system.title} ({member.name})",
        introduction(config, start["parameters"]),
        _tested(outcome, figures_of(config)),
        f"On the dev set, greedy, at its best validation: BLEU {best['bleu']:.2f}, chrF2 {best['chrf']:.2f} "
        f"(`{best['signatures']['bleu']}`, `{best['signatures']['chrf']}`).",
        f"Trained on {files} ({start['training']}) with seed {config.training.seed}{chosen}: best after "
        f"{best['update']:,} updates, {best['sentences']:,} sentences, {duration(best['seconds'])} of "
        f"{duration(outcome.progress.seconds)}{beside}; ended by: {ending(outcome)}.",
        *about,
        *made_by([outcome.made]),
        f"Its log: [{log}](../{log}). The weights are not here: the same call trains them, into "
        f"`{member.folder.name}`, and `caesura translate {place} < text` uses them.",
        _LIMITS,
    ]
    return "\n\n".join(parts) + "\n"


def _tested(outcome: Outcome, names: Sequence[Figure]) -> str:
    scores = outcome.measured.get("test")
    if scores is None:
        return "It has not been tested yet."
    search = ", ".join(f"{name} {value}" for name, value in scores["search"].items())
    if "figures" not in scores:  # measured by an earlier version
        live = renamed(scores).get(LIVE.name)
        scores = scores | {"figures": {} if live is None else {LIVE.name: live}}
    return f"On the test set ({search}):\n\n{figures(scores, names)}"
