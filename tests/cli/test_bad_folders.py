"""Model folders and output paths that are not as they should be, and configs with mistakes."""

import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.program import AT_ONCE, Done, caesura, contents, refusal, write_config
from training.poison import poison
from wording import wording

FILES = ("config.yaml", "src.vocab.json", "trg.vocab.json", "model.safetensors")


@pytest.fixture
def model(models: dict[str, Path], tmp_path: Path) -> Path:
    """A model folder that may be damaged."""
    return Path(shutil.copytree(models["act"], tmp_path / "model"))


@pytest.mark.parametrize("name", FILES)
def test_a_model_folder_with_a_missing_file_is_refused_by_its_name(model: Path, name: str) -> None:
    (model / name).unlink()
    message = wording(refusal(caesura("translate", model, stdin=b"eins\n")))
    assert message.startswith(f"{model}: ")
    assert name in message


@pytest.mark.parametrize("name", ["translate", "evaluate"])
@pytest.mark.parametrize("place", ["act-1", "runs/tau=0__seed=1"])
def test_a_folder_with_models_beneath_it_says_where_they_are(
    model: Path, tmp_path: Path, place: str, name: str
) -> None:
    home = tmp_path / "sweep"
    (home / place).parent.mkdir(parents=True)
    model.rename(home / place)
    message = wording(refusal(caesura(name, home, stdin=b"")))
    assert message.startswith(f"{home}: ")
    assert message.endswith(f" {home / place}")
    shutil.copytree(home / place, (home / place).with_name("z"))
    assert wording(refusal(caesura(name, home, stdin=b""))).startswith(f"{message} and 1 ")


@pytest.mark.parametrize(
    ("name", "share"),  # the end of a config cannot be missed where it says what is the default
    [(name, share) for name in FILES for share in (0.0, 0.5, 0.98) if (name, share) != (FILES[0], 0.98)],
)
def test_a_model_folder_with_a_truncated_file_is_refused_by_its_name(
    model: Path, name: str, share: float
) -> None:
    content = (model / name).read_bytes()
    (model / name).write_bytes(content[: int(len(content) * share)])
    done = caesura("translate", model, stdin=b"eins\n")
    assert done.status == 2, done.err
    assert done.out == ""
    assert done.err.startswith(f"caesura: {model / name}")
    assert "Traceback" not in done.err


def test_weights_of_another_model_are_refused(models: dict[str, Path], model: Path) -> None:
    shutil.copy(models["word"] / "model.safetensors", model)
    message = wording(refusal(caesura("segment", model, stdin=b"eins\n")))
    assert message.startswith(f"{model}/config.yaml: ")


@pytest.mark.parametrize("name", ["translate", "segment"])
def test_a_missing_model_folder_is_named_with_the_way_to_make_one(tmp_path: Path, name: str) -> None:
    message = wording(refusal(caesura(name, tmp_path / "none")))
    assert message.startswith(f"{tmp_path}/none: ")
    assert "`caesura train CONFIG --out " in message
    (tmp_path / "some.de").write_text("eins\n")
    assert wording(refusal(caesura(name, tmp_path / "some.de"))).startswith(f"{tmp_path}/some.de: ")


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_a_damaged_checkpoint_is_warned_of_and_the_one_before_takes_over(
    corpus: Path, models: dict[str, Path], model: Path, damage: str
) -> None:
    before, newest = sorted((model / "checkpoints").iterdir())[-2:]
    content = bytearray(newest.read_bytes())
    content[-100] ^= 1
    newest.write_bytes(content[:-500] if damage == "truncated" else content)
    given = ("train", corpus / "act.yaml", "--out", model, "--set", "training.updates=10")
    done = caesura(*given)
    assert (done.status, done.err) == (0, "")
    assert f"warning: {newest}: damaged (" in done.out
    assert f"({before})" in done.out
    assert (model / "model.safetensors").read_bytes() == (models["act"] / "model.safetensors").read_bytes()
    assert "warning" not in caesura(*given).out, "it has been written again"


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-500])


@pytest.mark.parametrize("damage", [_truncate, Path.unlink])
def test_a_damaged_best_model_is_written_anew_from_the_checkpoint_of_its_update(
    corpus: Path, models: dict[str, Path], model: Path, damage: Callable[[Path], None]
) -> None:
    weights = model / "model.safetensors"
    damage(weights)
    given = ("train", corpus / "act.yaml", "--out", model, "--set", "training.updates=10")
    done = caesura(*given)
    assert (done.status, done.err) == (0, "")
    assert f"warning: {weights}: damaged (" in done.out
    assert done.lines[-1] == f"the best model is in {model}"
    assert weights.read_bytes() == (models["act"] / "model.safetensors").read_bytes()
    assert "warning" not in caesura(*given).out


def test_a_damaged_best_model_of_an_earlier_update_is_replaced_or_refused(
    corpus: Path, tmp_path: Path
) -> None:
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    skipping = "validation_freq: 40\n  patience: 99\n  max_skipped: 9"
    config.write_text(config.read_text().replace("validation_freq: 200", skipping))

    def train(name: str, updates: int) -> Done:
        with poison(4, 5, 6, 7, 8):
            return caesura("train", config, "--out", tmp_path / name, "--set", f"training.updates={updates}")

    assert train("whole", 8).status == 0
    weights = Path(shutil.copytree(tmp_path / "whole", tmp_path / "out")) / "model.safetensors"
    _truncate(weights)
    for updates in (8, 9):  # over, no better than at 4: already, and again after the last skipped one
        done = train("out", updates)
        assert done.status == 2
        assert done.err.startswith(f"caesura: {weights}: damaged (")
        assert done.err.endswith("delete the folder and train again\n")
        assert "best model is in" not in done.out
        assert (f"warning: {weights}: damaged (" in done.out) == (updates == 9)
    assert train("whole", 9).status == 0
    for name in ("whole", "out"):
        done = train(name, 60)
        assert (done.status, done.lines[-1]) == (0, f"the best model is in {tmp_path / name}")
        assert (f"warning: {weights}: damaged (" in done.out) == (name == "out")
    assert weights.read_bytes() == (tmp_path / "whole" / "model.safetensors").read_bytes()


def test_a_run_none_of_whose_checkpoints_is_whole_is_refused(corpus: Path, model: Path) -> None:
    for path in (model / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    done = caesura("train", corpus / "act.yaml", "--out", model, "--set", "training.updates=10")
    assert done.status == 2
    assert wording(done.err).startswith(f"caesura: {model}/checkpoints: ")


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ("  batch_sise: 10", "training.batch_sise"),
        ("  batch_size: -3", "training.batch_size"),
        ("  batch_size: ten", "training.batch_size"),
    ],
)
def test_a_mistake_in_a_config_is_named_by_file_and_line(
    corpus: Path, tmp_path: Path, wrong: str, key: str
) -> None:
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    text = config.read_text().replace("  batch_size: 10", wrong)
    config.write_text(text)
    line = text.split("\n").index(wrong) + 1
    message = wording(refusal(caesura("train", config, "--out", tmp_path / "out")))
    assert message.startswith(f"{config}:{line}: {key}: ")
    assert not (tmp_path / "out").exists()


def test_several_mistakes_in_a_config_have_a_line_each(corpus: Path, tmp_path: Path) -> None:
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    config.write_text(config.read_text().replace("level: char", "level: charr").replace("1e-2", "0"))
    done = caesura("train", config, "--out", tmp_path / "out")
    assert done.status == 2
    keys = [line.split(": ")[-2] for line in wording(done.err).splitlines()]
    assert keys == ["data.src.level", "data.trg.level", "training.learning_rate"]


@pytest.mark.parametrize(
    "setting",
    [
        "model.segmenter.embeding_dim=3",
        "model.segmenter.taux=3",
        "model.encoder.typ=recurrent",
        "model.segmenter.embedding_dim=0",
        "model.segmenter.type=actt",
        "model.decoder.hidden_size=many",
        "training.seed",
        "trainng.seed=1",
        "data.joint=true",
    ],
)
def test_a_bad_setting_is_refused_with_a_remedy(corpus: Path, tmp_path: Path, setting: str) -> None:
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    message = wording(refusal(caesura("train", config, "--out", tmp_path / "out", "--set", setting)))
    assert message.startswith(f"--set {setting}: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("limit", ["soon", "9 minutes", "-3s", "", "s", "30m1h"])
def test_a_bad_time_limit_is_refused_before_anything_is_written(
    corpus: Path, tmp_path: Path, limit: str
) -> None:
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    message = wording(refusal(caesura("train", config, "--out", tmp_path / "out", "--time-limit", limit)))
    assert message.startswith(f"--time-limit {limit}: ")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        (["--n-best", "6"], "--n-best 6: "),
        (["--n-best", "3", "--beam", "2"], "--n-best 3: "),
        (["--n-best", "2", "--sample"], "--n-best 2: "),
        (["--device", "tpu"], "--device tpu: "),
        (["--sample", "--temperature", "0"], "--temperature 0.0: "),
        (["--sample", "--temperature", "nan"], "--temperature nan: "),
    ],
)
def test_a_bad_option_of_translate_is_refused(
    models: dict[str, Path], options: list[str], wrong: str
) -> None:
    assert wording(refusal(caesura("translate", models["word"], *options, stdin=b"eins\n"))).startswith(wrong)


def test_a_device_that_is_not_here_is_refused(
    corpus: Path, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    message = wording(refusal(caesura("segment", models["word"], "--device", "cuda")))
    assert message.startswith("--device cuda: ")
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    message = refusal(caesura("train", config, "--out", tmp_path / "out", "--set", "training.device=cuda"))
    assert wording(message).startswith("--set training.device=cuda: ")


@pytest.mark.parametrize("arguments", [["translat"], ["translate"], ["segment", "m", "--bogus"]])
def test_what_the_command_line_does_not_know_has_status_2(arguments: list[str]) -> None:
    done = caesura(*arguments)
    assert done.status == 2
    assert "Error" in done.err
    assert "Traceback" not in done.err


def test_a_model_named_twice_cannot_be_compared(models: dict[str, Path], corpus: Path) -> None:
    given = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    message = refusal(caesura("compare", models["word"], models["word"] / ".", *given))
    assert wording(message).startswith("compare: ")


@pytest.mark.parametrize("below", ["", "out", "deep/er"])
def test_an_output_path_at_or_below_a_file_is_refused_and_the_file_kept(
    corpus: Path, tmp_path: Path, below: str
) -> None:
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    before = contents(tmp_path)
    message = refusal(caesura("train", config, "--out", config / below))
    assert wording(message).startswith(f"{config / below}: ")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["config.yaml", "README.md", "model.safetensors"])
def test_files_of_others_in_the_output_folder_are_not_overwritten(
    corpus: Path, tmp_path: Path, name: str
) -> None:
    config = write_config(tmp_path / "c.yaml", folder=corpus)
    (tmp_path / name).write_text("# mine\n")
    before = contents(tmp_path)
    message = wording(refusal(caesura("train", config, "--out", tmp_path)))
    assert message.startswith(f"{tmp_path}: ")
    assert name in message
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", ["checkpoints", "cache", "metrics.jsonl", "validations.tsv", "config.yaml"])
def test_training_does_not_write_through_a_link_out_of_its_folder(
    corpus: Path, model: Path, tmp_path: Path, name: str
) -> None:
    if name == "cache":  # exists only if text as numbers cannot lie beside the text
        (model / name).mkdir(exist_ok=True)
    (model / name).rename(tmp_path / "precious")
    (model / name).symlink_to(tmp_path / "precious")
    before = contents(tmp_path)
    message = refusal(caesura("train", corpus / "act.yaml", "--out", model, "--set", "training.updates=10"))
    assert wording(message).startswith(f"{model / name}: ")
    assert contents(tmp_path) == before


def test_what_killed_runs_left_half_written_is_removed_and_nothing_else(corpus: Path, model: Path) -> None:
    ours = (
        "model.safetensors.77.part",
        "checkpoints/000000009.safetensors.7.part",
        "cache/train.bin.1234.part",
    )
    theirs = ("film.2.part", "model.safetensors.part", "notes/config.yaml.3.part")
    for folder in ("notes", "cache"):
        (model / folder).mkdir()
    for name in (*ours, *theirs):
        (model / name).write_bytes(b"half")
    assert caesura("train", corpus / "act.yaml", "--out", model, "--set", "training.updates=10").status == 0
    assert [(model / name).exists() for name in (*ours, *theirs)] == [False] * 3 + [True] * 3


def test_a_disk_that_fills_up_while_training_loses_no_checkpoint(
    corpus: Path, models: dict[str, Path], tmp_path: Path
) -> None:
    config = write_config(tmp_path / "c.yaml", "word", corpus)
    given = ("train", config, "--out", tmp_path / "out")
    assert caesura(*given, "--time-limit", AT_ONCE).status == 0
    first = next((tmp_path / "out" / "checkpoints").iterdir())
    room = first.stat().st_size  # the first checkpoint has no moments yet; the next ones are larger
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room + 1000, unlimited[1]))
    try:
        done = caesura(*given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert done.status == 1
    assert wording(done.err).startswith(f"caesura: {tmp_path}/out: ")
    assert [*(tmp_path / "out" / "checkpoints").iterdir()] == [first]
    assert caesura(*given).status == 0
    best = (models["word"] / "model.safetensors").read_bytes()
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == best
