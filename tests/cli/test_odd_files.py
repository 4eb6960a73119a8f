"""Pipes and folders in the places of files, names that are not UTF-8, and numbers beyond all bounds."""

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cli.program import AT_ONCE, SYSTEMS, caesura, contents, refusal, write_config
from folders.test_strangers import at_most
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from wording import refuses

from caesura.analysis.plots import save
from caesura.analysis.report import NUMBERS
from caesura.components import resolve
from caesura.config import load_config, yamlfile
from caesura.data.files import read_json
from caesura.errors import InputError
from caesura.experiments.processes import Children
from caesura.training.lock import LOCK
from caesura.training.start import FILES, FOLDERS

WITHIN = ("cache/train.idx", "cache/train.bin", "checkpoints/000000010.safetensors", "skipped/000000001.json")
SOURCE = b"eins zwei\n"


def train(config: Path, out: Path, *settings: str) -> Any:
    words = [word for setting in ("training.updates=10", *settings) for word in ("--set", setting)]
    with at_most(60):
        return caesura("train", config, *words, "--out", out, "--time-limit", AT_ONCE)


@pytest.mark.parametrize("name", [LOCK, *FILES, *WITHIN, *FOLDERS])
@pytest.mark.parametrize("fresh", [True, False])
def test_a_pipe_in_a_run_folder_is_refused_by_its_name_and_not_waited_for(
    models: dict[str, Path], corpus: Path, tmp_path: Path, name: str, fresh: bool
) -> None:
    out = tmp_path / "out"
    if not fresh:
        shutil.copytree(models["word"], out)
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(out / name)
    message = refusal(train(write_config(corpus / "word.yaml", "word"), out))
    assert message.startswith(f"{out / name}: ")


@pytest.mark.parametrize("name", [LOCK, *FILES])
def test_a_link_to_itself_in_a_run_folder_is_refused(corpus: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "out" / name
    path.parent.mkdir()
    path.symlink_to(name)
    message = refusal(train(write_config(corpus / "word.yaml", "word"), tmp_path / "out"))
    assert message.startswith(f"{path}: ")


def test_pipes_in_the_folder_of_an_experiment_are_not_waited_for(tmp_path: Path) -> None:
    pipes = {name: tmp_path / name for name in ("sweep.json", "run.log", "curves.png", "curves.svg")}
    for path in pipes.values():
        os.mkfifo(path)
    with at_most(60):
        with refuses(ValueError):
            read_json(pipes["sweep.json"])
        with Children() as children, pytest.raises(InputError, match=rf"^{pipes['run.log']}: "):
            children.start("run", ["caesura.cli", "--version"], pipes["run.log"])
        save(Figure(), tmp_path / "curves")
    assert pipes["curves.png"].read_bytes().startswith(b"\x89PNG")
    assert b"</svg>" in pipes["curves.svg"].read_bytes()


@pytest.mark.parametrize("name", [LOCK, *FILES, *WITHIN])
def test_a_folder_in_place_of_a_file_is_refused(corpus: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    message = refusal(train(write_config(corpus / "word.yaml", "word"), tmp_path / "out"))
    assert message.startswith(f"{tmp_path / 'out' / name}: ")
    assert (tmp_path / "out" / name).is_dir()


def test_a_folder_with_the_name_of_a_file_that_was_not_finished_stays(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "config.yaml.12.part").mkdir(parents=True)
    assert train(write_config(corpus / "word.yaml", "word"), tmp_path / "out").status == 0
    assert (tmp_path / "out" / "config.yaml.12.part").is_dir()


@pytest.mark.parametrize("name", ["validations.tsv", "metrics.jsonl", "train.words.json"])
@pytest.mark.slow
@pytest.mark.usefixtures("sketched")
def test_a_report_of_a_folder_with_a_pipe_is_made_without_it_or_refused(
    models: dict[str, Path], corpus: Path, tmp_path: Path, name: str
) -> None:
    model = Path(shutil.copytree(models["act"], tmp_path / "model"))
    (model / name).unlink()
    os.mkfifo(model / name)
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en", "--out", tmp_path / "report")
    with at_most(120):
        done = caesura("analyze", model, *text)
    assert done.status == 0 or refusal(done).startswith(f"{model / name}: ")


def test_a_pipe_in_place_of_an_earlier_report_is_refused(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / NUMBERS)
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en", "--out", tmp_path)
    with at_most(60):
        message = refusal(caesura("analyze", models["act"], *text))
    assert message.startswith(f"{tmp_path / NUMBERS}: ")


def test_text_may_come_through_a_pipe(models: dict[str, Path], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    if (child := os.fork()) == 0:
        try:
            (tmp_path / "pipe").write_bytes(SOURCE)
        finally:
            os._exit(0)
    with at_most(60):
        done = caesura("translate", models["word"], tmp_path / "pipe")
    os.waitpid(child, 0)
    assert (done.status, len(done.lines)) == (0, 1)


NAMES = [b"no\xffutf-8", *(pytest.param(name, marks=pytest.mark.slow) for name in (b"\xed\xa0\x80", b"a\nb"))]


@pytest.fixture(params=NAMES, ids=ascii)
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with an odd name."""
    folder = tmp_path / os.fsdecode(request.param)
    folder.mkdir()
    return folder


def test_models_work_in_folders_with_any_name(models: dict[str, Path], corpus: Path, odd: Path) -> None:
    model = shutil.copytree(models["word"], odd / odd.name)
    expected = [caesura(command, models["word"], stdin=SOURCE) for command in ("translate", "segment")]
    assert [caesura(command, model, stdin=SOURCE) for command in ("translate", "segment")] == expected
    text = shutil.copytree(corpus, odd / "text")
    words = ("--src", text / "dev.de", "--trg", text / "dev.en", "--json")
    done = caesura("evaluate", model, *words)
    assert (done.status, done.err) == (0, "")
    done.out.encode()  # JSON is UTF-8, whatever folders are called


def test_a_run_in_a_folder_with_any_name_ends_and_goes_on(corpus: Path, odd: Path, tmp_path: Path) -> None:
    config = write_config(corpus / "word.yaml", "word")
    for updates in (2, 3):
        words = ("--set", f"training.updates={updates}", "--set", "testing.max_output_extra=1")
        for out in (odd / odd.name, tmp_path / "plain"):
            assert caesura("train", config, *words, "--out", out).err == ""
    for name in ("model.safetensors", "config.yaml"):
        assert (odd / odd.name / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    (odd / odd.name / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("sketched")
def test_reports_of_models_in_folders_with_any_name(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    odd = tmp_path / os.fsdecode(b"no\xff\nutf-8")
    odd.mkdir()
    first, second = (shutil.copytree(models["act"], odd / f"{odd.name}{n}") for n in (1, 2))
    text = Path(shutil.copy(corpus / "dev.de", odd / odd.name)), corpus / "dev.en"
    words = ("--src", text[0], "--trg", text[1], "--out")
    assert caesura("analyze", first, *words, odd / "report").status == 0
    assert caesura("compare", first, second, *words, odd / "compared").status == 0
    for report in ("report", "compared"):
        for content in contents(odd / report).items():
            assert content[0].endswith(".png") or content[1].decode()


def test_text_whose_name_a_config_cannot_hold_is_refused_with_its_key(corpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    shutil.copytree(corpus, folder)
    config = write_config(folder / "word.yaml", "word", Path())
    text = config.read_text(encoding="utf-8")
    config.write_text(re.sub(r"dev: .*", f"dev: {{src: {corpus}/dev.de, trg: {corpus}/dev.en}}", text))
    done = train(config, tmp_path / "out")
    assert done.status == 2
    assert all("data.train." in line for line in done.err.splitlines())
    assert not (tmp_path / "out").exists()


SIZES = {
    "char": [
        *("model.segmenter.embedding_dim", "model.encoder.hidden_size", "model.encoder.num_layers"),
        *("model.decoder.embedding_dim", "model.decoder.hidden_size", "model.decoder.attention_size"),
        *("training.batch_size", "training.keep_last", "training.risk_candidates", "training.examples"),
        *("training.validation_freq", "training.warmup", "training.threads", "training.sampling_updates"),
        *("testing.alpha", "testing.beta", "testing.beam_size", "testing.batch_size", "testing.max_input"),
        *("testing.max_output_extra", "testing.max_output_ratio", "data.max_chars", "data.src.max_length"),
        *("data.src.voc_limit", "training.max_skipped", "training.seed", "training.checkpoint_minutes"),
    ],
    "act": ["model.segmenter.embedding_dim", "model.segmenter.act_size", "model.segmenter.output_dim"],
    "act-act": ["model.decoder.act_size", "model.decoder.hidden_size", "model.decoder.embedding_dim"],
    "bpe": ["data.src.voc_limit"],
}
PARTS = [
    "{reader: {type: lookup, embedding_dim: N}, cutter: every, pooling: mean}",
    "{reader: {type: gru, embedding_dim: 8, size: N}, cutter: every, pooling: mean}",
    "{reader: {type: bigru, embedding_dim: N, size: 8}, cutter: every, pooling: mean}",
    "{reader: {type: lookup, embedding_dim: 8}, cutter: {type: fixed, k: N}, pooling: mean}",
    "{reader: {type: lookup, embedding_dim: 8}, cutter: every, pooling: mean, output_dim: N}",
    "{reader: {type: gru, embedding_dim: 8, size: 8}, cutter: cif, pooling: weighted, rate: {target: N}}",
]


def sized(number: int) -> list[tuple[str, str]]:
    """A system each, and a setting of it with this number."""
    cases = [(system, f"{key}={number}") for system, keys in SIZES.items() for key in keys]
    return cases + [("char", f"model.segmenter={parts.replace('N', str(number))}") for parts in PARTS]


@pytest.mark.parametrize("number", [2**62, 2**63 - 1, 2**31])
def test_a_number_beyond_all_bounds_is_refused_by_its_key_or_does_no_harm(corpus: Path, number: int) -> None:
    configs = {system: write_config(corpus / f"{system}.yaml", system) for system in SYSTEMS}
    for system, setting in sized(number):
        try:
            resolve(load_config(configs[system], [setting]))
        except InputError as problem:
            message = str(problem)
            assert "\n" not in message
            assert setting.partition("=")[0].rpartition(".")[0] in message, message


@pytest.mark.slow
@pytest.mark.parametrize("number", [2**62, 2**31])
def test_a_training_with_a_number_beyond_all_bounds(corpus: Path, tmp_path: Path, number: int) -> None:
    for at, (system, setting) in enumerate(sized(number)):
        done = train(write_config(corpus / f"{system}.yaml", system), tmp_path / str(at), setting)
        assert done.status == 0 or refusal(done), setting


PIECES = [
    *r"\"{}[]:,-?!&*#|>%@`~'+0",
    *("\\x", "\\u", "\\U", "FFFFFFFF", "00110000", "d800", "9" * 30, "9" * 5000, "0x1F", "0o7", "1_0", "1e"),
    *("!!int ", "!!float ", "!!timestamp ", "!!binary ", "!!set ", ".inf", ".nan", "2001-01-01", "<<: "),
    *("a", " ", "\n", "\t", "\x07", "\ufeff", "é"),
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example('"\\UFFFFFFFF"')
@example('"\\U00110000"')
@example("\x85\ud800")
def test_any_yaml_is_read_or_refused(text: str) -> None:
    with suppress(InputError):
        yamlfile.read_override(f"a={text}")


@pytest.mark.parametrize("escape", ["UFFFFFFFF", "U00110000", "ud800", "x", "u12"])
def test_an_escape_that_stands_for_no_character_is_refused_with_its_line(corpus: Path, escape: str) -> None:
    config = write_config(corpus / "escape.yaml", "word")
    config.write_text(config.read_text().replace("lang: en", f'lang: "\\{escape}"'))
    with pytest.raises(InputError) as caught:
        load_config(config)
    assert str(caught.value).startswith(f"{config}:6: ")


@pytest.mark.parametrize("option", ["--beam", "--n-best"])
@pytest.mark.parametrize("number", [1001, 2**70])
def test_an_option_beyond_all_bounds_is_refused(models: dict[str, Path], option: str, number: int) -> None:
    done = caesura("translate", models["word"], option, number, stdin=SOURCE)
    assert (done.status, done.out) == (2, "")
    assert option in done.err
