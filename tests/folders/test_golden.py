"""Folders that earlier versions wrote load and translate as they did; of later ones the version is named."""

import shutil
from pathlib import Path

import pytest

from caesura import __version__
from caesura.components import resolve
from caesura.data.entropy import NgramCuts
from caesura.data.entropy_gru import GruCuts
from caesura.data.files import checksum
from caesura.data.tensors import load_tensors, save_tensors
from caesura.errors import InputError
from caesura.inference import Translator
from caesura.model_folder import FORMAT

GOLDEN = Path(__file__).parent / "golden"  # by make_golden.py, each at its time
OUTPUTS = {  # translations and cuts of two sentences; up to format 5 it was one model
    5: (["bbaaa", "bbaaaa"], [["abc"], ["hg", "fe", "dcb", "a"]]),
    6: (["a", "a"], [["ab", "c"], ["hg", "fe", "dcb", "a"]]),
    7: (["a", "a"], [["abc"], ["hgf", "ed", "cba"]]),
}
ENTROPY_CUTS = [["ab", "c"], ["hgfed", "c", "b", "a"], []]
ENTROPIES = [2.6440362643295137, 0.9926715727168356, 2.5204356893266393]  # bits, of "abh"


@pytest.mark.parametrize("number", range(FORMAT + 1))
def test_a_folder_of_every_format_so_far_translates_as_it_did(number: int) -> None:
    model = Translator.from_pretrained(GOLDEN / f"format{number}")
    written, cut = OUTPUTS[max(5, number)]
    assert model.translate(["abc", "hgfedcba", ""]) == [*written, ""]
    assert model.segment(["abc", "hgfedcba", ""]) == [*cut, []]


def test_a_folder_with_n_grams_cuts_as_it_did() -> None:
    model = Translator.from_pretrained(GOLDEN / "format7-entropy")
    assert model.segment(["abc", "hgfedcba", ""]) == ENTROPY_CUTS
    assert isinstance(model.cuts, NgramCuts)
    assert model.cuts.scores("abh").tolist() == pytest.approx(ENTROPIES, abs=1e-12)


def test_a_folder_with_a_gru_of_characters_cuts_as_it_did() -> None:
    """Exactly: the GRU's sums are of whole numbers."""
    model = Translator.from_pretrained(GOLDEN / "format7-gru")
    assert model.segment(["abc", "hgfedcba", ""]) == [["ab", "c"], ["hg", "fe", "dcba"], []]
    assert isinstance(model.cuts, GruCuts)
    assert model.cuts.scores("abh").tolist() == [3.0609989166259766, 3.013789176940918, 3.1120758056640625]


@pytest.mark.parametrize("kind", ["", "-entropy", "-gru"])
def test_what_is_written_now_is_of_the_newest_golden_format(kind: str, tmp_path: Path) -> None:
    newest = GOLDEN / f"format{FORMAT}{kind}"
    Translator.from_pretrained(newest).save_pretrained(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in newest.iterdir()}
    (_, now), (_, then) = (load_tensors(folder / "model.safetensors") for folder in (tmp_path, newest))
    assert now.keys() == then.keys()
    assert now["format"] == then["format"] == FORMAT


def test_an_option_that_a_folder_does_not_have_yet_is_its_default(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / f"format{FORMAT}", tmp_path / "model"))
    whole, config = Translator.from_pretrained(folder), folder / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("      dropout: 0.0\n", "").replace("      weight: 1.0\n", ""))
    assert config.read_text() != text
    weights, facts = load_tensors(folder / "model.safetensors")
    facts["files"]["config.yaml"] = checksum(config)
    save_tensors(folder / "model.safetensors", weights, facts)
    model = Translator.from_pretrained(folder)
    assert resolve(model.config) == resolve(whole.config)
    assert model.translate(["hgfedcba"]) == whole.translate(["hgfedcba"])


def test_a_folder_of_a_later_version_says_which_version_to_use(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / f"format{FORMAT}", tmp_path / "model"))
    path = folder / "model.safetensors"
    weights, facts = load_tensors(path)
    save_tensors(path, weights, facts | {"format": FORMAT + 1, "version": "9.1.0"})
    with pytest.raises(InputError) as caught:
        Translator.from_pretrained(folder)
    assert str(caught.value) == (
        f"{path}: a model of format {FORMAT + 1}, by caesura 9.1.0; this is {__version__}, "
        f"which reads up to {FORMAT}: use that version or a later one"
    )
