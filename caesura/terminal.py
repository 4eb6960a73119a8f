"""The terminal: progress, validations, tables. Drawn with rich, without torch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import (
    Progress as Bar,
)
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from caesura.evaluation.pieces import join_pieces
from caesura.evaluation.rates import aim, off_rate
from caesura.visible import each_line, escaped, one_line

if TYPE_CHECKING:
    from caesura.analysis.cuts import CutMeasures
    from caesura.evaluation.evaluate import Evaluation
    from caesura.segmenters.figures import Figure
    from caesura.training.checkpoint import Progress
    from caesura.training.validation import Validation, ValidationExample


class Screen(Console):
    """A console that shows text as it is: no markup, no emoji names, and invisible characters escaped."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """What rich draws; only its own control codes stay."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment("\n".join(map(escaped, segment.text.split("\n"))), segment.style)


out = Screen(soft_wrap=True)
err = Screen(stderr=True, soft_wrap=True)

WATCHED = "CAESURA_WATCHED"  # in the environment of a process whose last line another one shows
TRAINING_LINES = 30.0  # seconds between lines of a training that nobody watches at a terminal


def beside_bar() -> Console:
    """Where to print while a bar is drawn on `err`: at a terminal the bar's own console makes room for it."""
    return err if out.is_terminal and err.is_terminal else out


def warn(text: str, of: str = "") -> None:
    """A sentence on the error stream, about a thing that is named; none where there is none."""
    if text:
        err.print(one_line(f"caesura: {of}: {text}" if of else f"caesura: {text}"))


def say(text: str) -> None:
    """Print a text on standard output, with lines of bounded length."""
    out.print(each_line(text))


def duration(seconds: float) -> str:
    """Seconds as people say them: 42s, 3m05s, 2h10m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def validation_line(v: dict[str, Any]) -> str:
    """The figures of one validation in one line."""
    parts = [
        f"{duration(v['seconds']):>6}",
        f"{v['sentences']:>9,} sentences",
        f"BLEU {v['bleu']:5.2f}",
        f"chrF2 {v['chrf']:5.2f}",
        f"exact {v['exact']:6.1%}",
        f"segments {v['segment_length']:.2f}{aim(v.get('target_length'))} (max {v['longest_segment']})",
        *v.get("headline", ()),
    ]
    if v.get("output_segment_length") is not None:
        parts.append(f"output segments {v['output_segment_length']:.2f} (max {v['longest_output_segment']})")
        parts.append(f"output live {v['output_live']:.1%}")
    if v["boundary_f1"] is not None:
        parts.append(f"boundary F1 {v['boundary_f1']:.2f}")
    return "  ".join([*parts, v["verdict"]])


def _warnings(v: dict[str, Any]) -> list[str]:
    """The warnings that follow a validation's line."""
    from caesura.evaluation.scores import wordless  # with sacrebleu, which most commands do without

    off = off_rate(v["segment_length"], v.get("target_length"))
    texts = (off and f"off its rate: {off}", *v.get("notices", ()), wordless(v["bleu"], v["chrf"]))
    return [text for text in texts if text]


def _bar(*columns: ProgressColumn) -> Bar:
    """A bar with a spinner, the name of its work and these columns; only at a terminal."""
    name = TextColumn("{task.description}", markup=False)
    return Bar(SpinnerColumn(), name, *columns, console=err, transient=True, disable=not err.is_terminal)


class _Display:
    """A bar or lines that change, below the lines that stay."""

    def __init__(self, changing: Bar | Live) -> None:
        self._changing = changing

    def __enter__(self) -> Self:
        if err.is_terminal:
            self._changing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._changing.stop()

    def say(self, text: str) -> None:
        """A sentence above the bar."""
        beside_bar().print(one_line(text))


class TrainingDisplay(_Display):
    """A progress bar while training, and one line per validation with a few segmented examples.

    Where there is no terminal, a line now and then takes the place of the bar.
    """

    def __init__(self, validation_freq: int) -> None:
        self._freq = validation_freq
        self._lines = _Lines("training", every=TRAINING_LINES)
        self._bar = _bar(BarColumn(), TimeElapsedColumn())
        super().__init__(self._bar)
        self._task = self._bar.add_task("reading", total=None)
        self._loss, self._work, self._began, self._before = "", "", 0.0, 0
        self.remark: str | None = None  # on the best model

    def working(self, what: str, done: int, total: int = 0) -> None:
        """Show how far reading, numbering or measuring is; `total`: 0, or about how many lines there are."""
        if what != self._work:
            self._work, self._began, self._before = what, time.monotonic(), done
        text = f"{what}: {done:,} lines"
        if 0 < done < total:
            text = f"{what}: {done:,} of about {total:,} lines"
        if self._before < done < total:
            left = (time.monotonic() - self._began) * (total - done) / (done - self._before)
            text += f", about {duration(left)} left"
        self._bar.update(self._task, description=text, completed=done if total else 0, total=total or None)
        if 0 < done < total:
            self._lines(text)

    def update(self, progress: Progress, loss: float | None) -> None:
        """Move the bar towards the next validation."""
        if loss is not None:
            self._loss = f"  cross-entropy {loss:.3f}"
        text = f"epoch {progress.epoch + 1}, update {progress.update:,}{self._loss}"
        done = progress.since_validation
        self._bar.update(self._task, description=text, completed=done, total=self._freq)
        self._lines(f"{text}, next validation: {done:,} of {self._freq:,} sentences")

    def validation(self, validation: Validation, examples: Sequence[ValidationExample]) -> None:
        """The figures, and how some sentences were cut and translated."""
        for text in (validation_line(vars(validation)), *_warnings(vars(validation))):
            self.say(text)
        if validation.verdict == "best":
            self.remark = validation.remark
        for _, output, reference in examples:
            self.say(f"        {join_pieces(output.segmentation.shown)}")
            mark = "=" if output.best == reference else f"(should be: {one_line(reference)})"
            shown = join_pieces(output.targets[0].shown) if output.targets else output.best
            beside_bar().print(f"        → {one_line(shown)}  {mark}", style="dim")


class FleetDisplay(_Display):
    """A changing line per training that runs; without a terminal, one line per validation and per minute."""

    def __init__(self) -> None:
        self._live = Live(console=err, transient=True, auto_refresh=False)
        super().__init__(self._live)
        self._lines = _Lines("training")

    def validation(self, name: str, record: dict[str, Any]) -> None:
        """The figures of one validation, where no line shows them."""
        if not err.is_terminal:
            for text in (validation_line(record), *_warnings(record)):
                self.say(f"{name}  {text}")

    def running(self, members: dict[str, str]) -> None:
        """The activity of every running member."""
        if err.is_terminal:
            width = max(map(len, members), default=0)
            rows = [
                Text(one_line(f"{name:<{width}}  {at}"), overflow="ellipsis") for name, at in members.items()
            ]
            self._live.update(Group(*rows), refresh=True)
        elif members:
            self._lines("; ".join(f"{name}: {at}" for name, at in members.items()))


class _Lines:
    """The text of a bar in at most one line per `every` seconds, where there is no terminal.

    A watched process prints the name of the bar at once and one line per second; the watcher adds the time.
    """

    every = 60.0

    def __init__(self, what: str, every: float | None = None) -> None:
        self._began = self._last = time.monotonic()
        self.every = self.every if every is None else every
        self._watched = WATCHED in os.environ and not err.is_terminal
        if self._watched:
            self.every = 1.0
            err.print(one_line(what))

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if not err.is_terminal and now - self._last >= self.every:
            self._last = now
            after = "" if self._watched else f" after {duration(now - self._began)}"
            err.print(f"{one_line(text)}{after}")


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A progress bar on the error stream, or lines where that is not a terminal.

    Call the result with the number of things done.
    """
    with _bar(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
        task, log = bar.add_task(one_line(what), total=total), _Lines(what)

        def report(more: int) -> None:
            bar.advance(task, more)
            log(f"{what}: {bar.tasks[task].completed:,.0f} of {total:,}")

        yield report


@contextmanager
def telling(what: str) -> Iterator[Callable[[str], None]]:
    """A spinner that shows the stage of long work; call the result with the stage."""
    with _bar(TimeElapsedColumn()) as bar:
        task, log = bar.add_task(one_line(what), total=None), _Lines(what)

        def report(at: str) -> None:
            bar.update(task, description=one_line(f"{what}: {at}"))
            log(f"{what}: {at}")

        yield report


@contextmanager
def stages(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """The same with counts; call the result with (stage, how many more sentences, all of them or 0)."""
    done: dict[str, int] = {}
    with telling(what) as tell:

        def report(stage: str, more: int, total: int = 0) -> None:
            done[stage] = done.get(stage, 0) + more
            tell(f"{stage}, {done[stage]:,} {f'of {total:,} ' if total else ''}sentences")

        yield report


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> None:
    """A table whose first column is text and whose others are numbers."""
    drawn = Table(
        title=one_line(title),
        caption=each_line(caption) or None,
        title_justify="left",
        caption_justify="left",
    )
    for i, column in enumerate(columns):
        drawn.add_column(one_line(column), justify="left" if i == 0 else "right", overflow="fold")
    for cells in rows:
        drawn.add_row(*map(one_line, cells))
    # In a file or a pipe nothing is folded; a terminal folds the widest column first: a name, not a number.
    Screen(width=None if out.is_terminal else 1000).print(drawn)


def evaluation(result: Evaluation, title: str, figures: Sequence[Figure]) -> None:
    """The measurements of a model, with signatures, and its boundaries beside trivial ones."""
    scores = result.scores
    rows = [
        ["BLEU", f"{scores.bleu:.2f}", scores.signatures["bleu"]],
        ["chrF2", f"{scores.chrf:.2f}", scores.signatures["chrf"]],
        ["chrF, order 2", f"{scores.chrf_bigram:.2f}", scores.signatures["chrf_bigram"]],
        ["exactly right", f"{scores.exact:.1%}", f"{scores.sentences} lines"],
        [
            "segment length",
            f"{result.segments.mean:.3f}",
            f"characters{aim(result.target)}; longest {result.segments.longest}",
        ],
    ]
    for figure in figures:
        if (value := result.figures.get(figure.name)) is not None:
            rows.append([figure.heading, figure.shown(value), figure.unit])
    if (written := result.output_segments) is not None:
        unit = f"characters; longest {written.longest}"
        rows.append(["segment length of outputs", f"{written.mean:.3f}", unit])
    if result.output_live is not None:
        rows.append(["output live", f"{result.output_live:.1%}", "of characters"])
    table(title, ["", "value", "signature or unit"], rows)
    if result.boundaries:
        cells = [
            [name, f"{row.precision:.3f}", f"{row.recall:.3f}", f"{row.f1:.3f}"]
            for name, row in result.boundaries.items()
        ]
        table("boundaries against gold", ["", "precision", "recall", "F1"], cells)


def cuts(measures: CutMeasures, title: str) -> None:
    """The measurements of a model's cuts; those that could not be made are left out."""
    rows: list[tuple[str, float | None, str, str]] = []
    for table_of in measures.boundaries:
        model, against = table_of.rows["model"], f"boundaries against {table_of.reference}"
        rows += [("boundary F1", model.f1, ".3f", against), ("precision", model.precision, ".3f", "")]
        rows += [("recall", model.recall, ".3f", "")]
        rows += [("F1 by chance", table_of.chance, ".3f", "of as many cuts at random places")]
    if bits := measures.surprisal:
        rows += [("surprisal at cuts", bits.at_cuts, ".3f", "bits of the character after a cut")]
        rows += [("everywhere", bits.everywhere, ".3f", "the same after any character")]
    moved = measures.moved
    if moved and (g := moved.fidelity):
        error = "" if g.cosine_error is None else f"± {g.cosine_error:.3f}; "
        rows += [
            ("cosine", g.cosine, ".3f", f"{error}between the scores' gradient in training and the true one")
        ]
        rows += [("sum in training", g.autograd_sum, ".4f", "positive: longer segments lower the loss")]
        rows += [("true sum", g.true_sum, ".4f", "the same")]
    if moved and (f := moved.flips):
        rows += [("best flip", f.best, ".4f", "its gain in nats per target symbol")]
        rows += [("greedy flips", f.greedy, ".4f", f"the same; {f.rounds:.1f} flips per sentence")]
        rows += [("hardening", f.hardening, ".4f", "what hard cuts cost, in the same unit")]
        rows += [("flips that gain", f.gaining, ".0%", f"of {f.gaps:,} gaps")]
        rows += [("direction known", f.agreeing, ".0%", f"by the gradient, of {f.compared:,} flips")]
    cells = [[name, format(value, form), unit] for name, value, form, unit in rows if value is not None]
    count = moved.sentences if moved else 0
    table(title, ["", "value", "what it is"], cells, f"cuts were moved in {count:,} sentences")
