"""A run that goes on with another config: what may be another, and what is refused."""

import shutil
from pathlib import Path

import pytest
from cli.program import write_corpus
from training.outcomes import Listener, configured, outcome, run, stopped
from wording import refuses

from caesura.components import resolve
from caesura.data.tensors import load_tensors, save_tensors
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.training.changes import refuse_changes
from caesura.training.checkpoint import list_checkpoints
from caesura.training.loop import train

pytestmark = pytest.mark.usefixtures("frequent_log")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "corpus").mkdir()
    write_corpus(tmp_path / "corpus", train=45, dev=5)
    return tmp_path / "corpus"


# 5 updates per epoch; validations after every 4th, or after every epoch.
EPOCHS = ("training.validation_freq=45", "training.updates=null")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (("training.updates=8",), ("training.updates=14",)),
        (
            ("training.updates=8", "training.decay=inverse-sqrt", "training.warmup=3"),
            ("training.updates=14", "training.decay=inverse-sqrt", "training.warmup=3"),
        ),
        (("training.updates=8", "training.epochs=2"), ("training.updates=null", "training.epochs=3")),
        ((*EPOCHS, "training.epochs=1"), (*EPOCHS, "training.epochs=3")),
    ],
)
def test_a_run_whose_bound_is_raised_equals_one_that_had_the_higher_one(
    corpus: Path, tmp_path: Path, low: tuple[str, ...], high: tuple[str, ...]
) -> None:
    settings = ("model.encoder.dropout=0.3", "training.learning_rate=0.02")
    run(configured(corpus, "act", *settings, *low), tmp_path / "raised")
    raised = configured(corpus, "act", *settings, *high)
    listener = run(raised, tmp_path / "raised")
    assert listener.rates, "it went on"
    run(raised, tmp_path / "whole")
    assert outcome(tmp_path / "raised") == outcome(tmp_path / "whole")
    Translator.from_pretrained(tmp_path / "raised")
    assert not run(raised, tmp_path / "raised").rates, "and is finished"


def test_the_validation_at_the_lower_bound_stays_and_the_next_are_counted_from_it(
    corpus: Path, tmp_path: Path
) -> None:
    settings = ("training.batch_size=5", "training.patience=null", "training.validation_freq=20")
    for updates in (6, 14):
        run(configured(corpus, "word", *settings, f"training.updates={updates}"), tmp_path / "raised")
    run(configured(corpus, "word", *settings, "training.updates=14"), tmp_path / "whole")
    raised, whole = outcome(tmp_path / "raised"), outcome(tmp_path / "whole")
    assert [row["update"] for row in raised["validations"]] == ["4", "6", "10", "14"]
    assert [row["update"] for row in whole["validations"]] == ["4", "8", "12", "14"]
    assert raised["state"] == whole["state"], "where it lowers no rate"


def test_a_run_that_its_schedule_has_ended_stays_so(corpus: Path, tmp_path: Path) -> None:
    settings = ("training.learning_rate=1e-9", "training.patience=1", "training.max_halvings=1")
    message = run(configured(corpus, "word", *settings), tmp_path / "out").messages[-1]
    assert "no new best" in message
    listener = run(configured(corpus, "word", *settings, "training.updates=99"), tmp_path / "out")
    assert (listener.rates, listener.messages[-1]) == ([], message)


def test_what_is_kept_and_shown_may_be_another(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus), tmp_path / "whole")
    stopped(configured(corpus), tmp_path / "out", 5)
    others = ("training.examples=1", "training.keep_last=3", "training.checkpoint_minutes=null")
    listener = run(configured(corpus, "word", *others), tmp_path / "out")
    assert {len(examples) for examples in listener.examples} == {1}
    assert len(list_checkpoints(tmp_path / "out" / "checkpoints")) == 3
    result, whole = outcome(tmp_path / "out"), outcome(tmp_path / "whole")
    del result["metrics"], whole["metrics"]  # which have the examples
    assert result == whole
    others = ("training.tensorboard=true", "data.test=other.tsv")
    refuse_changes(resolve(configured(corpus, "word", *others)), tmp_path / "whole", going_on=True)


def test_text_may_be_moved_and_must_be_the_same(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus), tmp_path / "whole")
    stopped(configured(corpus), tmp_path / "out", 5)
    moved = Path(shutil.move(corpus, tmp_path / "moved"))
    text = (moved / "train.en").read_text()
    (moved / "train.en").write_text(text.replace("one", "won", 1))
    with refuses(InputError, "", "(data.train.src: ", " -> "):
        train(configured(moved), tmp_path / "out", Listener())
    (moved / "train.en").write_text(text)
    (tmp_path / "out" / "checkpoints" / "000000006.safetensors").write_bytes(b"damaged")
    run(configured(moved), tmp_path / "out")
    assert outcome(tmp_path / "out") == outcome(tmp_path / "whole")


def test_a_run_with_a_key_that_is_gone_goes_on(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus), tmp_path / "whole")
    stopped(configured(corpus), tmp_path / "out", 5)
    path = tmp_path / "out" / "config.yaml"
    path.write_text(path.read_text().replace("\ntraining:\n", "\ntraining:\n  poison: []\n"))
    (checkpoint,) = list_checkpoints(tmp_path / "out" / "checkpoints")
    values, facts = load_tensors(checkpoint)
    facts["config"]["training"]["poison"] = []
    save_tensors(checkpoint, values, facts)
    run(configured(corpus), tmp_path / "out")
    assert outcome(tmp_path / "out") == outcome(tmp_path / "whole")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("training.updates=4", "training.updates=3"),
        ("training.updates=null", "training.updates=4"),
        ("training.decay=linear", "training.updates=20"),
        ("training.epochs=3", "training.epochs=2"),
        ("training.seed=1", "training.seed=2"),
        ("training.validation_freq=35", "training.validation_freq=45"),
    ],
)
def test_what_training_depends_on_may_not(corpus: Path, tmp_path: Path, before: str, after: str) -> None:
    stopped(configured(corpus, "word", before), tmp_path / "out", 2)
    with refuses(InputError, "", f"({after.partition('=')[0]}: "):
        train(configured(corpus, "word", before, after), tmp_path / "out", Listener())


def test_runs_that_are_compared_may_have_nothing_else(corpus: Path, tmp_path: Path) -> None:
    run(configured(corpus), tmp_path / "out")
    refuse_changes(resolve(configured(corpus)), tmp_path / "out")
    other = resolve(configured(corpus, "word", "training.updates=20", "training.examples=1"))
    with refuses(InputError, "", "(training.updates: 14 -> 20; training.examples: 3 -> 1)"):
        refuse_changes(other, tmp_path / "out")
