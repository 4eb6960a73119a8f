"""Cuts after given characters, from a config to what is trained, saved, loaded and shown."""

import json
from pathlib import Path

import pytest
from cli.program import caesura, refusal, write_config
from helpers import ACT, ACT_DECODER, tiny_model
from training.outcomes import check_resumed, configured, run
from wording import refuses

from caesura.analysis.defaults import with_defaults
from caesura.components import resolve
from caesura.config import Config, load_config
from caesura.data.vocabulary import CharVocabulary, WordVocabulary
from caesura.errors import InputError
from caesura.experiments.provenance import described, digest
from caesura.inference import Translator

pytestmark = pytest.mark.usefixtures("frequent_log")
WORDS = ("learn_halting=false", "halting_bias=-20", "tau=0")


def cutting(corpus: Path, characters: str, *settings: str) -> Config:
    options = (f"cut_after={json.dumps(characters)}", *settings)
    return configured(corpus, "act", *(f"model.segmenter.{setting}" for setting in options))


def test_what_is_trained_cuts_the_same_once_it_is_loaded(corpus: Path, tmp_path: Path) -> None:
    run(cutting(corpus, " f", "halting_bias=-9"), tmp_path / "run")
    model = Translator.from_pretrained(tmp_path / "run")
    assert model.config.model.segmenter.options["cut_after"] == " f"
    texts = ["eins zwei fünf", " acht", "neun ", "f", ""]
    pieces = [["eins ", "zwei ", "f", "ünf"], [" ", "acht"], ["neun "], ["f"], []]
    assert model.segment(texts) == pieces
    model.save_pretrained(tmp_path / "copy")
    assert Translator.from_pretrained(tmp_path / "copy").segment(texts) == pieces
    done = caesura("segment", tmp_path / "copy", stdin=b"eins zwei\n")
    assert (done.status, done.lines) == (0, ["eins␣|zwei"])


def test_words_are_segments_where_the_unit_never_halts(corpus: Path, tmp_path: Path) -> None:
    listener = run(cutting(corpus, " ", *WORDS), tmp_path)
    assert (
        listener.messages.count("model.segmenter.learn_halting is false: where segments end will not change")
        == 1
    )
    assert ", cut_after ' '" in (tmp_path / "README.md").read_text()
    model = Translator.from_pretrained(tmp_path)
    for text in (corpus / "dev.de").read_text(encoding="utf-8").splitlines():
        words = text.split(" ")
        assert model.segment([text]) == [[*(f"{word} " for word in words[:-1]), words[-1]]]


def test_a_resumed_run_equals_an_uninterrupted_one(corpus: Path, tmp_path: Path) -> None:
    config = cutting(corpus, " ")
    check_resumed(config, tmp_path, 3)


def test_a_decoder_that_shares_the_unit_has_cuts_of_its_own() -> None:
    sharing = ACT_DECODER | {"share": True}
    plain, cut = (tiny_model(ACT | {"cut_after": given}, decoder=sharing) for given in ("", "abcdefgh"))
    assert cut.segment(["abc"]) == [["a", "b", "c"]]
    written = plain.segment_targets(["h"], ["abcde"])[0].pieces
    assert cut.segment_targets(["h"], ["abcde"])[0].pieces == written
    assert written != [*"abcde"]


def test_results_from_before_the_option_count_as_those_without_cuts(corpus: Path) -> None:
    config = resolve(configured(corpus, "act"))
    tree = described(config)
    old = json.loads(json.dumps(tree))
    del old["model"]["segmenter"]["cut_after"]
    assert with_defaults(old) == tree
    assert digest(old) == digest(tree) == digest(described(resolve(cutting(corpus, ""))))
    assert digest(described(resolve(cutting(corpus, " ")))) != digest(tree)


def test_a_config_with_a_space_is_read_as_it_was_written(corpus: Path, tmp_path: Path) -> None:
    config = resolve(cutting(corpus, " \t'\".-"))
    (tmp_path / "again.yaml").write_text(config.dump(), encoding="utf-8")
    assert load_config(tmp_path / "again.yaml") == config


@pytest.mark.parametrize(
    "settings",
    [
        ["cut_after=3"],
        ["cut_after= "],
        ["cut_after="],
        ["cut_after=~"],
        ['cut_after=[" "]'],
        ["type=lookup", "embedding_dim=3", 'cut_after=" "'],
    ],
)
def test_what_cannot_be_is_refused(corpus: Path, settings: list[str]) -> None:
    with refuses(InputError, f"--set model.segmenter.{settings[-1]}: "):
        resolve(configured(corpus, "act", *(f"model.segmenter.{setting}" for setting in settings)))


@pytest.mark.parametrize("level", ["byte", "word", "bpe", "wordpiece"])
def test_other_levels_are_refused_before_text_is_read(corpus: Path, level: str) -> None:
    config = cutting(corpus, " ")
    side = config.data.src.model_copy(update={"level": level})
    config = config.model_copy(update={"data": config.data.model_copy(update={"src": side})})
    with refuses(InputError, "", "cut_after=", "data.src.level: char", level):
        resolve(config)


def test_a_vocabulary_of_words_is_refused_whatever_the_config_says(corpus: Path) -> None:
    with refuses(InputError, "", "cut_after=", "data.src.level: char", "word"):
        Translator.build(cutting(corpus, " "), WordVocabulary(["eins"]), CharVocabulary(["a"]))


def test_a_character_that_the_text_has_not_ends_the_command_with_a_remedy(
    corpus: Path, tmp_path: Path
) -> None:
    config, out = write_config(corpus / "act.yaml", "act"), tmp_path / "out"
    words = ("--set", "training.updates=2", "--set")
    done = caesura("train", config, "--out", out, *words, 'model.segmenter.cut_after=" #"')
    assert refusal(done).startswith(
        "--set model.segmenter.cut_after=\" #\": '#' is not in the vocabulary of the training text; "
        "leave it out"
    )
    # Nothing is left there that keeps the command from being given again, put right.
    done = caesura("train", config, "--out", out, *words, 'model.segmenter.cut_after=" "')
    assert done.status == 0, done.err
