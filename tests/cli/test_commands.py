"""What the commands print when all is well."""

import json
import lzma
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import sacrebleu
from cli.program import GERMAN, SYSTEMS, caesura, refusal, with_config
from wording import wording

from caesura import Translator
from caesura.evaluation.pieces import split_pieces
from caesura.training.journal import training_seconds
from caesura.training.lock import hold

Write = Callable[[str, bytes | str], Path]

TEXT = "eins zwei\nneun\n\nsieben acht fünf\n"


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_file_and_standard_input_are_translated_as_python_translates_them(
    models: dict[str, Path], write: Write, system: str
) -> None:
    from_file = caesura("translate", models[system], write("a.de", TEXT))
    from_stdin = caesura("translate", models[system], stdin=TEXT.encode())
    packed = caesura("translate", models[system], write("a.de.xz", lzma.compress(TEXT.encode())))
    assert from_file == from_stdin == packed
    assert (from_file.status, from_file.err) == (0, "")
    model = Translator.from_pretrained(models[system])
    assert from_file.lines == model.translate(TEXT.split("\n")[:-1])


def test_who_uses_a_model_in_training_is_told(models: dict[str, Path]) -> None:
    alone = caesura("translate", models["act"], stdin=b"neun\n")
    with hold(models["act"], print):
        meanwhile = caesura("translate", models["act"], stdin=b"neun\n")
    assert alone == replace(meanwhile, err="")
    assert str(models["act"]) in wording(meanwhile.err, models["act"])


def test_of_a_tsv_the_source_column_is_read(models: dict[str, Path], write: Write) -> None:
    rows = [f"{source}\ttarget" + "\t1" * (i == 0) for i, source in enumerate(TEXT.split("\n")[:-1])]
    table = "\n".join(rows).encode()
    for command in ("translate", "segment"):
        plain = caesura(command, models["act"], stdin=TEXT.encode())
        assert len(plain.lines) == 4
        assert caesura(command, models["act"], write("a.tsv", table)) == plain
        assert caesura(command, models["act"], write("a.tsv.xz", lzma.compress(table))) == plain
        assert "a .tsv for its source column" in " ".join(caesura(command, "--help").out.split())
    one_column = caesura("segment", models["act"], path := write("b.tsv", "eins\tone\nzwei\n"))
    assert wording(refusal(one_column, answered=1)).startswith(f"{path}:2: ")


def test_a_last_line_without_an_end_is_translated_too(models: dict[str, Path]) -> None:
    whole, cut = (caesura("translate", models["word"], stdin=text) for text in (b"neun\n", b"neun"))
    assert whole == cut
    assert whole.lines == ["nine"]


def test_lines_keep_their_order_over_the_borders_of_chunks(models: dict[str, Path]) -> None:
    # Chunks have 8 * testing.batch_size = 32 lines, and inside a chunk lines are sorted by length.
    texts = [" ".join(GERMAN[(i * k) % 9] for k in range(1, 2 + i % 4)) for i in range(81)]
    texts[40] = ""
    together = caesura("translate", models["word"], "--beam", 1, stdin="\n".join(texts).encode()).lines
    model = Translator.from_pretrained(models["word"])
    alone = {text: model.translate([text], beam=1)[0] for text in set(texts)}
    assert together == [alone[text] for text in texts]
    assert len(set(together)) > 20, "so many different lines that a wrong order would be seen"


def test_beam_1_is_greedy_and_the_beam_of_the_config_is_the_default(models: dict[str, Path]) -> None:
    model = Translator.from_pretrained(models["act"])
    texts = TEXT.split("\n")[:-1]
    for options, beam in (([], 5), (["--beam", "1"], 1), (["--beam", "3"], 3)):
        done = caesura("translate", models["act"], *options, stdin=TEXT.encode())
        assert done.lines == model.translate(texts, beam=beam)


def test_n_best_prints_number_score_and_text_best_first(models: dict[str, Path]) -> None:
    best = caesura("translate", models["word"], stdin=b"eins\nneun acht\n").lines
    done = caesura("translate", models["word"], "--n-best", 3, stdin=b"eins\nneun acht\n")
    rows = [line.split("\t") for line in done.lines]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "2", "2"]
    scores = [float(row[1]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    assert scores[3:] == sorted(scores[3:], reverse=True)
    assert max(scores) < 0
    assert [rows[0][2], rows[3][2]] == best
    assert len({row[2] for row in rows[:3]}) == 3


def test_json_has_the_source_its_pieces_and_the_hypotheses(models: dict[str, Path]) -> None:
    done = caesura("translate", models["act"], "--json", "--n-best", 2, stdin="fünf\n\n".encode())
    first, empty = map(json.loads, done.lines)
    assert first["source"] == "fünf" == "".join(first["pieces"])
    assert [set(h) for h in first["hypotheses"]] == [{"text", "score", "log_prob", "finished"}] * 2
    assert "ü" in done.out, "readable, not escaped"
    assert empty == {"source": "", "pieces": [], "hypotheses": []}


def test_segments_puts_the_cut_source_before_the_translation(models: dict[str, Path]) -> None:
    plain = caesura("translate", models["act"], stdin=TEXT.encode()).lines
    cut = caesura("segment", models["act"], stdin=TEXT.encode()).lines
    both = caesura("translate", models["act"], "--segments", stdin=TEXT.encode()).lines
    assert both == [f"{pieces}\t{text}" for pieces, text in zip(cut, plain, strict=True)]


def test_segments_puts_both_cuts_before_where_the_decoder_cuts_too(models: dict[str, Path]) -> None:
    model, texts = models["act-act"], TEXT.split("\n")[:-1]
    plain = caesura("translate", model, stdin=TEXT.encode()).lines
    rows = [line.split("\t") for line in caesura("translate", model, "--segments", stdin=TEXT.encode()).lines]
    assert [row[2] for row in rows] == plain
    for column, whole in ((0, texts), (1, plain)):
        assert ["".join(split_pieces(row[column])) for row in rows] == whole
    assert any("|" in row[1] for row in rows)
    records = map(json.loads, caesura("translate", model, "--json", "--n-best", 2, stdin=TEXT.encode()).lines)
    for record in records:
        assert all("".join(h["pieces"]) == h["text"] for h in record["hypotheses"])


@pytest.mark.slow
def test_compare_shows_the_output_segments_of_models_that_cut_them(
    models: dict[str, Path], corpus: Path
) -> None:
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en", "--beam", 1)
    alone = caesura("compare", models["act"], *text).out
    assert "output segments" not in alone
    rows = json.loads(caesura("compare", models["act"], models["act-act"], *text, "--json").out)
    assert rows[0]["output_segments"] is None
    shown = caesura("compare", models["act"], models["act-act"], *text).out
    assert "output segments" in shown
    assert f"{rows[1]['output_segments']['mean']:.2f} (max {rows[1]['output_segments']['longest']})" in shown


def test_given_translations_are_cut_as_an_act_decoder_cuts_them(
    models: dict[str, Path], corpus: Path, write: Write
) -> None:
    src, trg = corpus / "train.de", corpus / "train.en"
    done = caesura("segment", models["act-act"], src, "--target", trg)
    assert (done.status, done.err) == (0, "")
    pieces = [split_pieces(line) for line in done.lines]
    assert ["".join(line) for line in pieces] == trg.read_text().split("\n")[:-1]
    assert max(len(piece) for line in pieces for piece in line) > 1
    given = (
        "segment",
        models["act-act"],
        write("a.de", "eins\n\n"),
        "--target",
        write("a.en", "one €\ntwo\n"),
    )
    first, second = (json.loads(line) for line in caesura(*given, "--json").lines)
    assert "".join(first["pieces"]) == first["target"] == "one €", "unknown characters come back too"
    assert [len(first[name]) for name in ("scores", "weights", "ends")] == [5, 5, 5]
    assert second["pieces"] == ["two"], "there is no source to attend to"
    long = caesura("segment", models["act-act"], src, "--target", write("b.en", "x" * 201 + "\n" * 60))
    assert long.lines == [""] * 60
    assert "b.en:1: " in wording(long.err)


def test_given_translations_need_a_decoder_that_cuts_and_as_many_lines(
    models: dict[str, Path], corpus: Path, write: Write
) -> None:
    src, trg = corpus / "train.de", corpus / "train.en"
    message = refusal(caesura("segment", models["act"], src, "--target", trg))
    assert wording(message).startswith("--target: ")
    short = caesura("segment", models["act-act"], src, "--target", write("short.en", "one\n"))
    assert short.status == 2
    assert "short.en" in short.err
    assert len(short.lines) == 1


@pytest.mark.parametrize("side", [0, 1])
def test_given_translations_before_a_bad_line_are_cut(
    models: dict[str, Path], write: Write, side: int
) -> None:
    lines = [b"eins\nzwei\ndrei\n"] * 2
    lines[side] = b"eins\nzwei\n\xff\n"
    src, trg = write("a", lines[0]), write("b", lines[1])
    done = caesura("segment", models["act-act"], src, "--target", trg)
    assert wording(refusal(done, answered=2)).startswith(f"{(src, trg)[side]}:3: ")


def test_samples_follow_the_seed_and_the_line_they_are_on(models: dict[str, Path]) -> None:
    texts = ("eins zwei drei\n" * 70).encode()

    def draw(*options: object) -> list[str]:
        return caesura("translate", models["word"], "--sample", *options, stdin=texts).lines

    first = draw("--seed", 3)
    assert first == draw("--seed", 3)
    assert first != draw("--seed", 4)
    assert len(set(first)) > 5
    assert first[:32] != first[32:64], "the second chunk of lines is drawn anew"
    assert len(set(draw("--temperature", 1e-4))) == 1


@pytest.mark.parametrize("system", SYSTEMS)
def test_segments_joined_give_back_the_line(models: dict[str, Path], corpus: Path, system: str) -> None:
    source = corpus / "train.de"
    done = caesura("segment", models[system], source)
    assert (done.status, done.err) == (0, "")
    pieces = [split_pieces(line) for line in done.lines]
    assert ["".join(line) for line in pieces] == source.read_text().split("\n")[:-1]
    lengths = {len(piece) for line in pieces for piece in line}
    assert lengths == {1} if system == "char" else max(lengths) > 1


def test_segment_as_json_has_scores_weights_and_bounds(models: dict[str, Path]) -> None:
    done = caesura("segment", models["act"], "--json", stdin="fünf acht\n".encode())
    record = json.loads(done.out)
    assert record["source"] == "fünf acht" == "".join(record["pieces"])
    assert "text" not in record
    assert [len(record[name]) for name in ("scores", "weights", "ends")] == [9, 9, 9]
    assert all(0 < score < 1 for score in record["scores"])
    ends = [i + 1 for i, end in enumerate(record["ends"]) if end]
    assert record["bounds"] == [end for end in ends if end < 9]
    record = json.loads(caesura("segment", models["word"], "--json", stdin=b"eins zwei\n").out)
    assert record["scores"] is None, "a lookup table scores no symbols"
    assert record["pieces"] == ["eins", " zwei"]


@pytest.mark.slow
@pytest.mark.parametrize("system", ["word", "act", "act-act"])
def test_evaluate_scores_what_translate_prints(models: dict[str, Path], corpus: Path, system: str) -> None:
    src, trg = corpus / "train.de", corpus / "train.en"
    translations = caesura("translate", models[system], src).lines
    references = trg.read_text().split("\n")[:-1]
    bleu = sacrebleu.corpus_bleu(translations, [references]).score
    chrf = sacrebleu.corpus_chrf(translations, [references]).score
    report = json.loads(caesura("evaluate", models[system], "--src", src, "--trg", trg, "--json").out)
    assert report["scores"]["bleu"] == bleu
    assert report["scores"]["chrf"] == chrf
    pairs = list(zip(translations, references, strict=True))
    assert report["scores"]["exact"] == sum(a == b for a, b in pairs) / len(pairs)
    assert set(report["scores"]["signatures"]) == {"bleu", "chrf", "chrf_bigram"}
    assert ("live" in report["figures"]) == (system != "word")
    assert report["boundaries"] is None
    done = caesura("evaluate", models[system], "--src", src, "--trg", trg)
    assert done.status == 0
    for shown in (f"{bleu:.2f}", f"{chrf:.2f}", "tok:13a", f"{report['segments']['mean']:.3f}"):
        assert shown in done.out
    assert ("remainder" in done.out) == (system != "word")
    assert ("segment length of outputs" in done.out) == (system == "act-act")
    assert (report["output_segments"] is None) == (system != "act-act")
    if system == "act-act":
        rows = [line.split("\t")[1] for line in caesura("translate", models[system], src, "--segments").lines]
        pieces = [piece for row in rows for piece in split_pieces(row)]
        assert report["output_segments"]["segments"] == len(pieces)
        assert report["output_segments"]["characters"] == len("".join(pieces))
        assert 0 < report["output_live"] < 1
    assert system != "word" or bleu > 10, "a score of zero would agree with many mistakes"


def test_no_score_is_without_its_search(models: dict[str, Path], corpus: Path, tmp_path: Path) -> None:
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    for settings, name, expected in (
        ((), "beam 5, alpha 1, beta 0, float32", (5, 1.0, 0.0, "float32")),
        (("--beam", 1), "greedy search, float32", (1, 1.0, 0.0, "float32")),
        (
            ("--beam", 3, *(f"--set=testing.{s}" for s in ("alpha=0.6", "beta=5.0", "precision=bfloat16"))),
            "beam 3, alpha 0.6, beta 5, bfloat16",
            (3, 0.6, 5.0, "bfloat16"),
        ),
    ):
        search = dict(zip(("beam", "alpha", "beta", "precision"), expected, strict=True))
        given = ("evaluate", models["word"], *text, *settings)
        shown = " ".join(caesura(*given).out.split())  # a title may be wrapped
        assert f"{corpus / 'dev.de'}, {name}" in shown
        assert json.loads(caesura(*given, "--json").out)["search"] == search
    given = ("compare", models["word"], models["bpe"], *text, *settings)
    shown = " ".join(caesura(*given).out.split())
    assert f"{corpus / 'dev.de'}, {name}" in shown
    assert [row["search"] for row in json.loads(caesura(*given, "--json").out)] == [search] * 2
    other = tmp_path / "other"
    model = Translator.from_pretrained(models["bpe"], settings=["testing.alpha=0.5"])
    model.save_pretrained(other)
    shown = " ".join(caesura("compare", models["bpe"], other, *text).out.split())
    assert f"{models['bpe']}: beam 5, alpha 1, beta 0, float32" in shown
    assert f"{other}: beam 5, alpha 0.5, beta 0, float32" in shown


def test_evaluate_compares_cuts_with_gold_boundaries_and_trivial_cuts(
    models: dict[str, Path], write: Write
) -> None:
    table = write("gold.tsv", "eins\tone\t2\nzwei neun\ttwo nine\t4 5\n")
    given = ("evaluate", models["char"], "--src", table)
    rows = json.loads(caesura(*given, "--json").out)["boundaries"]
    # A character model cuts everywhere: 3 + 8 places, of which 1 + 2 are right.
    assert rows["model"]["recall"] == 1
    assert rows["model"]["precision"] == pytest.approx(3 / 11)
    assert len(rows) == 5, "every character, every 2, whitespace, none"
    shown = caesura(*given).out
    assert "boundaries against gold" in shown
    assert all(name in shown for name in rows)


def test_compare_puts_models_side_by_side_with_a_bootstrap_against_the_first(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    twin = Path(shutil.copytree(models["word"], tmp_path / "twin"))
    text = ("--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    given = ("compare", models["word"], models["bpe"], twin, *text)
    first, other, same = json.loads(caesura(*given, "--json").out)
    assert [row["model"] for row in (first, other, same)] == [
        str(models["word"]),
        str(models["bpe"]),
        str(twin),
    ]
    assert first["p_values"] == {"bleu": None, "chrf": None}
    assert same["p_values"] == {"bleu": 1.0, "chrf": 1.0}
    assert other["p_values"]["chrf"] < 0.05
    assert other["scores"]["chrf"] < first["scores"]["chrf"] == same["scores"]["chrf"]
    alone = json.loads(caesura("evaluate", models["bpe"], *text, "--json").out)
    assert other["scores"] == alone["scores"]
    assert other["parameters"] == Translator.from_pretrained(models["bpe"]).parameter_count()
    assert other["training_seconds"] == training_seconds(models["bpe"])  # 0 where the start was best
    assert other["translating_seconds"] > 0
    shown = caesura(*given).out
    assert str(twin) in shown, "in a pipe, a table is as wide as its contents"
    assert f"{first['scores']['bleu']:.2f}" in shown
    assert f"{other['parameters']:,}" in shown
    assert "1.000" in shown
    assert "to best" in shown, "the time to the best validation, not of all training"
    assert f"paired bootstrap of BLEU against {models['word']}" in shown
    chosen = json.loads(caesura(*given, "--baseline", "bpe", "--json").out)
    assert [row["baseline"] for row in chosen] == [False, True, False]
    assert [row["p_values"]["chrf"] is None for row in chosen] == [False, True, False]
    for heading in ("wrd", ""):
        done = caesura(*given, "--baseline", heading)
        assert (done.status, done.out) == (2, "")
        assert all(name in done.err for name in ("--baseline", "word, bpe, twin"))


def test_compare_takes_one_model_and_gold_boundaries(models: dict[str, Path], write: Write) -> None:
    table = write("gold.tsv", "eins\tone\t2\nzwei\ttwo\t2\n")
    done = caesura("compare", models["act"], "--src", table)
    assert done.status == 0
    assert "boundary" in done.out
    assert "bootstrap" not in done.out
    [row] = json.loads(caesura("compare", models["act"], "--src", table, "--json").out)
    assert row["p_values"] is None
    assert row["boundaries"]["model"]["f1"] >= 0


def test_models_that_score_differently_are_not_compared(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with_config(models["char"], other, "bleu_tokenize: 13a", "bleu_tokenize: char")
    message = refusal(
        caesura("compare", models["char"], other, "--src", corpus / "dev.de", "--trg", corpus / "dev.en")
    )
    assert "testing.bleu_tokenize" in wording(message)


def test_evaluate_takes_the_configs_test_set_by_default(
    models: dict[str, Path], corpus: Path, tmp_path: Path
) -> None:
    assert "data.test" in wording(refusal(caesura("evaluate", models["char"])))
    other = tmp_path / "other"
    test = f"test:\n    src: {corpus / 'dev.de'}\n    trg: {corpus / 'dev.en'}\n"
    with_config(models["char"], other, "test: null\n", test)
    given = caesura("evaluate", other, "--src", corpus / "dev.de", "--trg", corpus / "dev.en", "--json")
    default = caesura("evaluate", other, "--json")
    assert wording(default.err).endswith(f": {corpus / 'dev.de'} and {corpus / 'dev.en'}\n")
    assert default.status == given.status == 0
    assert json.loads(default.out)["scores"] == json.loads(given.out)["scores"]
