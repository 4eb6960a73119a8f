"""`caesura average`: means of weights are models like any others, and unlike models are refused."""

import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from cli.program import Done, caesura, contents, refusal
from hypothesis import given
from hypothesis import strategies as st
from numbered import corpus_of
from torch import Tensor
from training.outcomes import configured, records, run
from wording import wording

from caesura.data.tensors import load_tensors, read_facts, save_tensors
from caesura.evaluation.boundaries import segment_length
from caesura.inference import Translator
from caesura.training import average as module
from caesura.training.average import Mean
from caesura.training.threshold import settle

KEEP = ("training.keep_best=3", "training.keep_last=4", "training.validation_freq=25")
READER = "{type: gru, embedding_dim: 6, size: 8}"
PARTS = f"reader: {READER}, cutter: {{type: act}}, pooling: weighted, output_dim: 6"
THRESHOLD = "segmenter.cutter.rate_control.threshold"
QUANTILE = f"model.segmenter={{{PARTS}, rate: {{target: 3.0, by: quantile}}}}"


@pytest.fixture(scope="module")
def runs(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Finished trainings; not to be written to."""
    home = tmp_path_factory.mktemp("runs")
    settings: dict[str, tuple[str, ...]] = {"word": (), "other": ("training.learning_rate=3e-3",)}
    for name, more in settings.items():
        run(configured(corpus, "word", *KEEP, *more), home / name)
    run(configured(corpus, "char", *KEEP, QUANTILE), home / "quantile")
    return {path.name: path for path in home.iterdir()}


def weights_of(path: Path) -> dict[str, Tensor]:
    """The weights of a model folder, or of a checkpoint of either kind."""
    tensors = load_tensors(path / "model.safetensors" if path.is_dir() else path)[0]
    whole = {name.removeprefix("model."): v for name, v in tensors.items() if name.startswith("model.")}
    return whole or tensors


@given(
    st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3), min_size=1, max_size=9)
)
def test_the_mean_is_the_mean(rows: list[list[float]]) -> None:
    mean = Mean({"a"})
    for row in rows:
        tensor = torch.tensor(row)
        mean.add({"a": tensor, "b": torch.zeros(1)})
        tensor += 1  # it is the caller's again
    expected = torch.tensor(rows, dtype=torch.float64).mean(0)
    assert mean.result().keys() == {"a"}
    torch.testing.assert_close(mean.result()["a"], expected, rtol=1e-12, atol=1e-300, equal_nan=True)


@pytest.mark.parametrize("by", ["last", "best"])
def test_the_weights_are_the_mean_of_those_of_a_runs_checkpoints(
    runs: dict[str, Path], tmp_path: Path, by: str
) -> None:
    out = tmp_path / "out"
    done = caesura("average", runs["word"], f"--{by}", 3, "--out", out)
    assert (done.status, done.err) == (0, "")
    validations = sorted(
        (row["bleu"], row["chrf"], row["update"]) for row in records(runs["word"], "validation")
    )
    saved = [int(path.stem) for path in sorted((runs["word"] / "checkpoints").glob("*.safetensors"))]
    updates = saved[-3:] if by == "last" else sorted(update for *_, update in validations[-3:])
    folder = runs["word"] / {"last": "checkpoints", "best": "best"}[by]
    models = [weights_of(folder / f"{update:09d}.safetensors") for update in updates]
    result = weights_of(out)
    for name, value in result.items():
        expected = torch.stack([model[name].double() for model in models]).mean(0).float()
        assert value.equal(expected), name
    assert result.keys() == weights_of(runs["word"]).keys()
    facts = read_facts(out / "model.safetensors")["averaged"]
    assert (facts["by"], facts["run"]) == (by, "word")
    assert [row["update"] for row in facts["of"]] == updates
    if by == "best":
        assert [(row["bleu"], row["chrf"], row["update"]) for row in facts["of"]] == sorted(
            validations[-3:], key=lambda row: row[2]
        )
    card = (out / "README.md").read_text(encoding="utf-8")
    assert [line.split("\t")[1] in card for line in done.lines] == [True] * 3
    assert all(f"update {update}" in line for update, line in zip(updates, done.lines, strict=True))


def test_the_mean_of_one_is_that_one_and_of_copies_the_same(runs: dict[str, Path], tmp_path: Path) -> None:
    best = max(records(runs["word"], "validation"), key=lambda row: (row["bleu"], row["chrf"]))
    assert caesura("average", runs["word"], "--best", 1, "--out", tmp_path / "best").status == 0
    assert (
        read_facts(tmp_path / "best" / "model.safetensors")["averaged"]["of"][0]["update"] == best["update"]
    )
    copies = [runs["word"]] * 3
    assert caesura("average", *copies, "--out", tmp_path / "copies").status == 0
    for name, value in weights_of(runs["word"]).items():
        assert weights_of(tmp_path / "best")[name].equal(value)
        assert weights_of(tmp_path / "copies")[name].equal(value)


def test_several_folders_are_averaged(runs: dict[str, Path], tmp_path: Path) -> None:
    done = caesura("average", runs["word"], runs["other"], "--out", tmp_path / "out")
    assert (done.status, done.lines) == (0, [f"{tmp_path}/out\t`word`", f"{tmp_path}/out\t`other`"])
    one, other, mean = map(weights_of, (runs["word"], runs["other"], tmp_path / "out"))
    for name, value in mean.items():
        assert value.equal(((one[name].double() + other[name].double()) / 2).float())
    assert not all(value.equal(one[name]) for name, value in mean.items())


def test_the_commands_take_the_folder(runs: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert caesura("average", runs["quantile"], "--best", 2, "--out", out).status == 0
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    model, sources = Translator.from_pretrained(out), (corpus / "dev.de").read_text().split("\n")[:-1]
    assert caesura("translate", out, corpus / "dev.de").lines == model.translate(sources)
    assert len(caesura("segment", out, corpus / "dev.de").lines) == len(sources)
    assert json.loads(caesura("evaluate", out, *text, "--json").out)["scores"]["sentences"] == len(sources)
    assert caesura("analyze", out, *text, "--only", "cuts", "--moved", 2, "--json").status == 0
    assert caesura("compare", runs["quantile"], out, *text, "--json").status == 0


def threshold(folder: Path) -> float:
    return float(weights_of(folder)[THRESHOLD])


def test_the_threshold_fits_the_mean_and_other_buffers_are_the_newest(
    runs: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = caesura("average", runs["quantile"], "--last", 3, "--out", out)
    assert (done.status, done.err) == (0, "")
    newest = weights_of(sorted((runs["quantile"] / "checkpoints").glob("*.safetensors"))[-1])
    model, result = Translator.from_pretrained(out), weights_of(out)
    buffers = {name for name, _ in model.named_buffers() if name in result}
    assert len(buffers) > 3
    differ = {name for name in buffers if not result[name].equal(newest[name])}
    assert differ == {THRESHOLD}
    settle(model, corpus_of(runs["quantile"]))
    assert float(model.segmenter.control.threshold) == threshold(out)  # type: ignore[union-attr]
    outputs = model.process((corpus / "train.de").read_text().split("\n")[:-1], None)
    mean = segment_length(output.segmentation.covered for output in outputs).mean
    assert mean == pytest.approx(3.0, rel=0.02)
    assert "threshold" in (out / "README.md").read_text(encoding="utf-8")


def test_without_numbered_text_the_threshold_is_set_on_the_text_itself(
    runs: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(runs["quantile"], tmp_path / "copy")
    assert caesura("average", copy, "--last", 2, "--out", tmp_path / "with").status == 0
    shutil.rmtree(corpus / "caesura-cache")
    before = contents(copy)
    done = caesura("average", copy, "--last", 2, "--out", tmp_path / "without")
    assert done.status == 0
    assert len(wording(done.err).splitlines()) == 1
    assert threshold(tmp_path / "without") == threshold(tmp_path / "with") != threshold(copy)
    assert contents(copy) == before, "nothing is written where it is read"
    assert not (corpus / "caesura-cache").exists()
    moved = shutil.move(corpus / "train.de", tmp_path / "train.de")
    try:
        done = caesura("average", copy, "--last", 2, "--out", tmp_path / "lost")
    finally:
        shutil.move(moved, corpus / "train.de")
    message = wording(refusal(done), corpus)
    assert message.startswith(f"{copy}: ")
    assert not (tmp_path / "lost").exists()


def test_ids_that_are_damaged_are_not_used(runs: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    corpus_of(runs["quantile"])
    assert caesura("average", runs["quantile"], "--last", 2, "--out", tmp_path / "whole").status == 0
    for ids in (corpus / "caesura-cache").glob("*.bin"):
        ids.write_bytes(ids.read_bytes()[:-1])
    done = caesura("average", runs["quantile"], "--last", 2, "--out", tmp_path / "out")
    shutil.rmtree(corpus / "caesura-cache")
    assert done.status == 0
    assert len(done.err.splitlines()) == 1, "the text itself is read"
    assert threshold(tmp_path / "out") == threshold(tmp_path / "whole")


def test_one_checkpoint_after_the_other_is_in_memory(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive: list[Any] = []
    most = 0

    def load(*given: Any) -> Any:
        nonlocal most
        most = max(most, sum(reference() is not None for reference in alive))
        tensors, facts = load_tensors(*given)
        alive.append(weakref.ref(max(tensors.values(), key=Tensor.numel)))
        return tensors, facts

    monkeypatch.setattr(module, "load_tensors", load)
    assert caesura("average", runs["word"], "--best", 3, "--out", tmp_path / "out").status == 0
    assert (len(alive), most) == (3, 1)


def test_a_killed_call_is_made_again_and_nothing_else_is_overwritten(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    call = ("average", runs["word"], "--best", 2, "--out", tmp_path / "out")
    assert caesura(*call).status == 0
    whole = contents(tmp_path / "out")
    assert wording(refusal(caesura(*call))).startswith(f"{tmp_path / 'out'}: ")
    (tmp_path / "out" / "model.safetensors").rename(tmp_path / "out" / "model.safetensors.123.part")
    assert caesura(*call).status == 0
    assert contents(tmp_path / "out") == whole
    (tmp_path / "out" / "model.safetensors").unlink()
    (tmp_path / "out" / "config.yaml").write_text("name: mine\n")
    assert wording(refusal(caesura(*call))).startswith(f"{tmp_path / 'out'}: ")
    assert (tmp_path / "out" / "config.yaml").read_text() == "name: mine\n"
    (tmp_path / "file").write_text("")
    assert wording(refusal(caesura(*call[:-1], tmp_path / "file"))).startswith(f"{tmp_path / 'file'}: ")


def test_the_folder_is_named_after_the_run(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs["word"], tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert caesura("average", "mine", "--best", 2).lines[0].startswith("mine-best2\t")
    monkeypatch.chdir(tmp_path / "mine")
    assert caesura("average", ".", "--last", 1).lines[0].startswith(f"{tmp_path}/mine-last1\t")
    assert caesura("average", "..", "--last", 1).status == 2


def copied(runs: dict[str, Path], tmp_path: Path) -> Path:
    return shutil.copytree(runs["word"], tmp_path / "copy", dirs_exist_ok=True)


def refused(tmp_path: Path, *arguments: object) -> str:
    """The error message of a refused call; it has made no folder."""
    done: Done = caesura("average", *arguments, "--out", tmp_path / "out")
    message = wording(refusal(done))
    assert not (tmp_path / "out").exists()
    return message


def test_what_is_asked_for_has_to_be_clear(runs: dict[str, Path], tmp_path: Path) -> None:
    word = runs["word"]
    assert refused(tmp_path, word).startswith(f"{word}: ")
    assert refused(tmp_path, word, "--last", 2, "--best", 2).startswith("--last ")
    assert refused(tmp_path, word, word, "--last", 2).startswith("--last ")
    assert refused(tmp_path, word, word, "--best", 2).startswith("--best ")
    assert refused(tmp_path, word, "--last", 9).endswith("training.keep_last=9, or take --last 4")
    assert refused(tmp_path, word, "--best", 4).endswith("training.keep_best=4, or take --best 3")
    assert wording(refusal(caesura("average", word, word))).startswith("--out ")
    copy = copied(runs, tmp_path)
    shutil.rmtree(copy / "best")
    assert refused(tmp_path, copy, "--best", 1).endswith("training.keep_best=1")
    assert refused(tmp_path, tmp_path / "none", "--best", 1).startswith(f"{tmp_path / 'none'}: ")


def test_the_state_before_the_first_update_is_no_model(
    corpus: Path, tmp_path: Path, runs: dict[str, Path]
) -> None:
    run(configured(corpus, "word", "training.keep_last=9", "training.updates=5"), tmp_path / "short")
    assert (tmp_path / "short" / "checkpoints" / "000000000.safetensors").exists()
    count = len([*(tmp_path / "short" / "checkpoints").glob("*")]) - 1
    assert refused(tmp_path, tmp_path / "short", "--last", count + 1).endswith(f"or take --last {count}")


def damage(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def another_config(path: Path) -> None:
    tensors, facts = load_tensors(path)
    facts["config"]["training"]["learning_rate"] = 0.5
    save_tensors(path, tensors, facts)


def another_shape(path: Path) -> None:
    tensors, facts = load_tensors(path)
    name = next(name for name, value in tensors.items() if value.dim() == 2 and "optimizer" not in name)
    save_tensors(path, {**tensors, name: tensors[name][:-1]}, facts)


def one_less(path: Path) -> None:
    tensors, facts = load_tensors(path)
    name = next(name for name, value in tensors.items() if value.dim() == 2 and "optimizer" not in name)
    save_tensors(path, {other: value for other, value in tensors.items() if other != name}, facts)


def no_scores(path: Path) -> None:
    tensors, facts = load_tensors(path)
    save_tensors(path, tensors, {name: value for name, value in facts.items() if name != "bleu"})


def a_pickle(path: Path) -> None:
    torch.save({"model.weight": torch.zeros(1)}, path)


def a_link(path: Path) -> None:
    path.rename(path.parents[2] / "elsewhere")
    path.symlink_to(path.parents[2] / "elsewhere")


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD = [damage, another_config, another_shape, one_less, a_pickle, a_link, a_folder]


@pytest.mark.parametrize(
    ("by", "change"),
    [*(("last", change) for change in BAD), *(("best", change) for change in [*BAD, no_scores])],
)
def test_a_checkpoint_that_does_not_fit_is_named(
    runs: dict[str, Path], tmp_path: Path, by: str, change: Any
) -> None:
    copy = copied(runs, tmp_path)
    path = sorted((copy / {"last": "checkpoints", "best": "best"}[by]).glob("*"))[-1]
    change(path)
    assert refused(tmp_path, copy, f"--{by}", 3).startswith(f"{path}: ")


@pytest.fixture
def strangers(corpus: Path, tmp_path: Path) -> dict[str, Path]:
    """Models that have no mean with `word`."""
    text = (corpus / "train.en").read_text()
    settings = {"seed": ("training.seed=2",), "wide": ("model.encoder.hidden_size=10",)}
    for name, more in settings.items():
        run(configured(corpus, "word", *KEEP, *more), tmp_path / name)
    run(configured(corpus, "char", *KEEP), tmp_path / "level")
    (corpus / "train.en").write_text(text.replace("two", "zwo"))
    try:
        run(configured(corpus, "word", *KEEP), tmp_path / "text")
    finally:
        (corpus / "train.en").write_text(text)
    return {name: tmp_path / name for name in (*settings, "level", "text")}


def test_folders_that_do_not_match_are_refused(
    runs: dict[str, Path], strangers: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LISTED", 1)
    parts = {
        "seed": "training.seed: 1 -> 2",
        "wide": "model.encoder.hidden_size: 12 -> 10",
        "level": "data.src.level: 'word' -> 'char'; and 1 more",
        "text": "trg.vocab.json",
    }
    for name, folder in strangers.items():
        message = refused(tmp_path, runs["word"], runs["other"], folder)
        assert message.startswith(f"{folder}: has no mean with {runs['word']}")
        assert parts[name] in message
