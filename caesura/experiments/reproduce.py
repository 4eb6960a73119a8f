"""`caesura reproduce`: every system of a recipe under one budget, and the paper's tables beside ours."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from caesura import terminal
from caesura.analysis.plots import png_of
from caesura.analysis.tables import Table
from caesura.config import Config
from caesura.data.files import write_whole
from caesura.errors import InputError, Interrupted
from caesura.experiments import panel_figures
from caesura.experiments.appendix import APPENDIX, NOTES, PAIRS, pairs_of, pairs_table, sections
from caesura.experiments.article import article_table, page_of, refresh
from caesura.experiments.cards import keep_cards, links
from caesura.experiments.claims import CLAIMS, NOTE, claims_table
from caesura.experiments.engine import Experiment
from caesura.experiments.fleet import Limits
from caesura.experiments.outcome import Member, Outcome
from caesura.experiments.provenance import made_by, over_recipe
from caesura.experiments.recipe import (
    Chosen,
    Recipe,
    RecipeSystem,
    find_recipe,
    load_recipe,
    systems,
)
from caesura.experiments.report import write_report
from caesura.experiments.result_figures import (
    BY_LENGTH,
    CAPTIONS,
    CURVES,
    by_length_figure,
    curves_figure,
    series_of,
)
from caesura.experiments.result_tables import (
    budgets,
    comparison_table,
    explained,
    fallen,
    off_rates,
    seeds_table,
    signatures,
    timing,
)
from caesura.experiments.results import SystemResult, by_table, keep_metrics, kept_metrics, read_kept
from caesura.experiments.text import (
    Split,
    kept_text,
    like_for_like,
    measure_text,
    reading_table,
    text_table,
)
from caesura.training.checkpoint import list_checkpoints
from caesura.training.lock import hold
from caesura.training.prepare import check_files
from caesura.visible import one_line

TABLE = "table.json"


def reproduce(name: str, chosen: Chosen, limits: Limits, report: bool, gold: str | None = None) -> bool:
    """Train and test the chosen systems of a recipe, and write its tables; False if a training failed.

    `gold`: a file of gold segments, for recipes that measure cuts.
    """
    began = time.monotonic()
    recipe = load_recipe(find_recipe(name, terminal.say))
    selected = systems(recipe, chosen)
    members = _in_turn(selected)
    shown = _with_earlier(recipe, chosen, selected)
    experiment = Reproduction(recipe, chosen.out, shown, gold)
    experiment.check(members)
    experiment.results()  # refuses unreadable results before anything starts
    with hold(chosen.out, lambda _: None):
        try:
            with terminal.FleetDisplay() as display:
                tested = {member for member in members if member.load().data.test is not None}
                if untested := [s.title for s in selected if tested.isdisjoint(s.members.values())]:
                    why = f"no data.test in the config of {', '.join(untested)}"
                    display.say(f"{why}: scored on dev alone, and a later call cannot add it")
                done = experiment.run(members, limits, display)
        except Interrupted:
            terminal.say("stopped; the same command goes on from here")
            raise
        experiment.show()
        if report and done:
            elapsed = time.monotonic() - began
            rest = limits.time_limit and limits.time_limit - elapsed
            experiment.report(replace(limits, time_limit=rest))
    return not any(member.failure.exists() for member in members)


def redraw(name: str, out: Path) -> list[Path]:
    """Write tables, figures and the appendix again from the results in a folder; returns the files."""
    recipe = load_recipe(find_recipe(name, terminal.say))
    shown = _with_earlier(recipe, Chosen(out), [])
    if not shown:
        remedy = f"`caesura reproduce {recipe.name} --out DIR` makes some"
        raise InputError(f"{out / 'metrics'}: no results of recipe {recipe.name} to draw; {remedy}")
    experiment = Reproduction(recipe, out, shown)
    experiment.splits = kept_text(out / TABLE)
    with hold(out, lambda _: None):
        experiment.write(drawn=True)
        page = experiment.append()
    names = [TABLE, "table.md", "table.csv", CLAIMS, APPENDIX, PAIRS, *CAPTIONS, *panel_figures.CAPTIONS]
    return [path for path in (out / name for name in names) if path.exists()] + page


def _in_turn(chosen: Sequence[RecipeSystem]) -> list[Member]:
    """Table by table, and in each the first seed of all systems first, so that tables are complete early."""
    tables = list(dict.fromkeys(system.table for system in chosen))
    turns = []
    for system in chosen:
        place = tables.index(system.table)
        turns += [(place, turn, member) for turn, member in enumerate(system.members.values())]
    return [member for _, _, member in sorted(turns, key=lambda turn: turn[:2])]


def _with_earlier(recipe: Recipe, chosen: Chosen, asked_for: Sequence[RecipeSystem]) -> list[RecipeSystem]:
    """The chosen systems, and those that earlier calls have trained in this folder, in the recipe's order.

    The settings of earlier calls do not matter here: their systems are shown by kept results.
    """
    mine = {system.name: system.members for system in asked_for}
    result = []
    seeds = tuple(sorted({*_trained_seeds(chosen.out), *(s for members in mine.values() for s in members)}))
    for system in systems(recipe, Chosen(chosen.out, seeds=seeds)):
        now = mine.get(system.name, {})
        before = {
            seed: member
            for seed, member in system.members.items()
            if list_checkpoints(member.folder / "checkpoints")
            or member.failure.exists()
            or kept_metrics(chosen.out, member).exists()
        }
        members = dict(sorted((before | now).items()))
        if members:
            result.append(replace(system, members=members))
    return result


def _trained_seeds(out: Path) -> Iterator[int]:
    begun = [path.parent.name for path in out.glob("*/checkpoints")]
    for name in (*begun, *(path.stem for path in out.glob("metrics/*.jsonl"))):
        seed = name.rpartition("-")[2]
        if re.fullmatch(r"\d{1,9}", seed):
            yield int(seed)


@dataclass(frozen=True)
class _Shown:
    """A table with its notes."""

    table: Table
    notes: list[str]
    cards: str = ""  # links to them
    changed: str = ""  # settings that differ from the recipe, and so from the title


class Reproduction(Experiment):
    """The results of a recipe in a folder, read anew whenever they are written."""

    def __init__(
        self,
        recipe: Recipe,
        out: Path,
        shown: Sequence[RecipeSystem],
        gold: str | None = None,
    ) -> None:
        super().__init__(out, recipe.wanted(gold))
        self.recipe, self.shown = recipe, shown
        self.configs: dict[str, Config] = {}  # one per text, of the members that were checked
        self.splits: list[Split] = []

    def kept(self, member: Member) -> Outcome | None:
        """The outcome in its log in metrics/."""
        return read_kept(self.out, member)

    def check(self, members: Sequence[Member]) -> None:
        """Check the members, and count the text; if it is missing, --data may name another folder."""
        try:
            for member in members:
                check_files(member.load(), ("train", "dev", "test"))
        except InputError as problem:
            raise InputError(f"{problem}, or all of it: --data FOLDER") from problem
        super().check(members)
        for system in self.shown:
            if chosen := [member for member in system.members.values() if member in members]:
                self.configs.setdefault(system.text, chosen[0].load())
        before = kept_text(self.out / TABLE) if len(self.recipe.texts) > 1 else []
        by_text = {text: [s for s in before if s.text == text] for text in self.recipe.texts}
        by_text |= {text: measure_text(config, text) for text, config in self.configs.items()}
        self.splits = [split for splits in by_text.values() for split in splits]

    def results(self) -> list[SystemResult]:
        """The current results."""
        return [SystemResult(s, {seed: self.outcome(m) for seed, m in s.members.items()}) for s in self.shown]

    def write(self, drawn: bool = False) -> None:
        """Write metrics/, cards/, table.md, table.json and table.csv; `drawn`: the figures too."""
        results = self.results()
        keep_metrics(self.out, results)
        keep_cards(self.out, results, self._about)
        content = {
            "recipe": self.recipe.name,
            "title": self.recipe.title,
            "notes": self._notes(results),
            "text": [asdict(split) for split in self.splits],
            "paper_text": self.recipe.paper_text and self.recipe.paper_text.model_dump(),
            "tables": {
                name: [result.record() for result in listed] for name, listed in by_table(results).items()
            },
        }
        write_whole(self.out / TABLE, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        write_whole(self.out / "table.csv", seeds_table(results).csv())
        if drawn and any(result.best for result in results):
            write_whole(self.out / CURVES, png_of(curves_figure(self.recipe, results)))
        if drawn and series_of(results):
            write_whole(self.out / BY_LENGTH, png_of(by_length_figure(self.recipe, results)))
        for name in panel_figures.FIGURES:
            if drawn and panel_figures.drawable(results, name):
                figure = panel_figures.panels_figure(self.recipe, results, name)
                write_whole(self.out / name, png_of(figure))
        write_whole(self.out / "table.md", self._markdown(results))  # which shows the figures

    def append(self) -> list[Path]:
        """Write the claims, and an appendix of what was kept: pairs of systems, noise, beams, errors.

        The tables of the page beside the folder are made anew as well; the page, if there is one.
        """
        parts, pairs = [f"# {self.recipe.title}: appendix\n"], []
        tables = {}
        for name, listed in by_table(self.results()).items():
            title = self.recipe.tables[name].title
            compared = pairs_of(listed)
            tables[name] = article_table(name, listed, compared)
            for table in sections(listed, compared):
                notes = f"\n{NOTES[table.key]}\n" if table.key in NOTES else ""
                parts.append(f"## {title}: {table.title}\n\n{table.markdown()}{notes}")
            pairs += [(name, pair) for pair in compared]
        if self.recipe.claims:
            table = claims_table(self.recipe.claims, self.results())
            head = f"# {self.recipe.title}: {table.title}\n\n"
            notes = "".join(f"\n{note}\n" for note in self._about(self.recipe.texts))
            write_whole(self.out / CLAIMS, f"{head}{table.markdown()}\n{NOTE}\n{notes}")
        if len(parts) > 1:
            write_whole(self.out / APPENDIX, "\n".join(parts))
        if pairs:
            write_whole(self.out / PAIRS, pairs_table(pairs).csv())
        page = page_of(self.out)
        return [page] if refresh(page, tables) else []

    def show(self) -> None:
        """Print the tables."""
        for shown in self._tables(self.results()):
            terminal.say(shown.table.text())
            notes = [one_line(text) for text in (shown.changed, *shown.notes) if text]
            if notes:
                terminal.say("\n".join([*notes, ""]))
        out = one_line(self.out)
        terminal.say(f"\nThe tables: {out}/table.md, .json and .csv; the models: {out}/*/")

    def report(self, limits: Limits) -> None:
        """Write the report of each text of this call, if it is out of date."""
        began, results = time.monotonic(), self.results()
        for text, config in self.configs.items():
            rest = limits.time_limit and limits.time_limit - (time.monotonic() - began)
            mine = [r for r in results if r.system.text == text]
            log = self.out / "report.log"
            write_report(mine, self.out / "report" / text, log, config, replace(limits, time_limit=rest))

    def _tables(self, results: Sequence[SystemResult]) -> list[_Shown]:
        """The tables that are not empty."""
        tables = []
        for name, listed in by_table(results).items():
            table = comparison_table(name, self.recipe.tables[name].title, listed)
            notes, changed = self._notes(listed, table), self._changed(listed)
            tables.append(_Shown(table, notes, links(self.out, listed), changed))
        for table in (text_table(self.splits, self.recipe.paper_text), reading_table(results)):
            tables.append(_Shown(table, self._about(self.recipe.texts)))
        return [shown for shown in tables if shown.table.rows]

    def _changed(self, results: Sequence[SystemResult]) -> str:
        """The settings that differ from the recipe's, with their rows unless all rows have them."""
        changes: dict[str, list[str]] = {}
        for result in results:
            system, rows = result.system, self.recipe.tables[result.system.table]
            in_recipe = {*rows.settings, *rows.rows[system.row].settings}
            for setting in over_recipe(in_recipe, [outcome.made for outcome in result.outcomes.values()]):
                changes.setdefault(setting, []).append(system.title)
        listed = [
            f"`{setting}`" + (f" ({', '.join(titles)})" if len(titles) < len(results) else "")
            for setting, titles in changes.items()
        ]
        return f"Other than in the recipe: {'; '.join(listed)}." if listed else ""

    def _about(self, texts: Iterable[str]) -> list[str]:
        paper = self.recipe.paper_text
        notes = [like_for_like(self.splits, paper, text) for text in dict.fromkeys(texts)]
        return [note for note in (*notes, self.recipe.note) if note]

    def _notes(self, results: Sequence[SystemResult], table: Table | None = None) -> list[str]:
        outcomes = [outcome for result in results for outcome in result.outcomes.values()]
        beams = sorted({o.made.get("beam") or o.member.load().testing.beam_size for o in outcomes})
        notes = [
            *self._about(result.system.text for result in results),
            "BLEU and chrF2 (order 6; of order 2: table.json) on the test set with beam "
            f"{', '.join(map(str, beams))}, dev greedily; ± is the standard deviation over seeds; "
            "segment length on dev, at the best validation there.",
            *(explained(table) if table else ()),
        ]
        untested = [r.system.title for r in results if r.figure("dev_bleu") and not r.figure("bleu")]
        if untested:
            why = "not tested yet, or no data.test in the config"
            notes.append(f"Scored on dev alone ({why}): {', '.join(untested)}.")
        for r in results:
            if late := [str(seed) for seed, o in r.outcomes.items() if o.best and o not in r.counted]:
                notes.append(f"{r.system.title}: without seed {', '.join(late)}, which is not tested yet.")
        notes += [*off_rates(results), *fallen(results)]
        if any(result.system.paper for result in results):
            notes.append("The paper prints chrF between 0 and 1; here it is a hundred times that.")
        if allowed := budgets(results):
            allowance = terminal.duration(*allowed) if len(allowed) == 1 else "its budget"
            notes.append(f"Each was given {allowance} of training, validations included, reading text not.")
        notes += made_by([outcome.made for outcome in outcomes])
        notes += timing(results)
        return [*notes, *(f"`{signature}`" for signature in signatures(results))]

    def _markdown(self, results: Sequence[SystemResult]) -> str:
        parts = [f"# {self.recipe.title}\n"]
        for name, caption in (CAPTIONS | panel_figures.CAPTIONS).items():
            if (self.out / name).exists():
                parts.append(f"![{caption}]({name})\n")
        for shown in self._tables(results):
            notes = "".join(f"- {note}\n" for note in (*shown.notes, shown.cards) if note)
            parts += [f"## {shown.table.title}\n", *([f"{shown.changed}\n"] if shown.changed else ())]
            parts.append(f"{shown.table.markdown()}\n{notes}")
        return "\n".join(parts)
