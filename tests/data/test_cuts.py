"""From text to cuts: rules, the ends of symbols, files of offsets, and what a caller gives."""

import gzip
import json
import lzma
import subprocess
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wording import refuses

from caesura.config import RuleCuts, SymbolCuts
from caesura.data.cuts import OffsetFile, RuledCuts, combine, places_of, text_cuts
from caesura.data.sentences import Numbered
from caesura.data.vocabulary import UNK
from caesura.data.vocabulary_file import load_vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError

TEXT = [
    "in gruppen spielen",
    "die gruppen spielten im gras",
    "spielende jungtiere",
    "jung im gras spielen",
] * 3
awkward = st.text(st.sampled_from("ab. ,\t\u3000!-東。"), max_size=20)


def cuts_of(text: str, source, kind: str = "char") -> list[int]:
    """The numbers of a source's cuts, per symbol of a vocabulary of this kind."""
    _, spans = train_vocabulary(kind, [text, "x"]).encode_spans(text)
    return source(text, places_of(spans)).tolist()


def pieces_of(text: str, offsets: list[int]) -> list[str]:
    return [text[a:b] for a, b in zip([0, *offsets], [*offsets, len(text)], strict=True)]


# Rules


def plain_loop(text: str, rule: RuleCuts) -> list[int]:
    """The offsets by looking at one gap after the other."""

    def cutting(character: str) -> bool:
        if rule.type == "characters":
            return character in rule.characters
        return character.isspace() if rule.type == "whitespace" else unicodedata.category(character)[0] == "P"

    offsets, begin = [], 0
    for at in range(1, len(text)):
        left, right = cutting(text[at - 1]), cutting(text[at])
        ends = right if rule.side == "before" else left
        if rule.type == "whitespace" and left and right:  # inside a run
            ends = False
        if ends or at - begin == rule.most:
            offsets.append(at)
            begin = at
    return offsets


@given(
    text=awkward,
    kind=st.sampled_from(["characters", "whitespace", "punctuation"]),
    side=st.sampled_from(["before", "after"]),
    most=st.none() | st.integers(1, 6),
)
@example(text="  a", kind="whitespace", side="before", most=None)
@example(text="a  ", kind="whitespace", side="after", most=None)
def test_rules_cut_where_a_plain_loop_does(text, kind, side, most):
    rule = RuleCuts(type=kind, characters="b." if kind == "characters" else "", side=side, most=most)
    offsets = RuledCuts(rule).offsets(text)
    assert offsets == plain_loop(text, rule)
    assert all(pieces_of(text, offsets)) or not text
    if most is not None:
        assert all(len(piece) <= most for piece in pieces_of(text, offsets))
    marks = cuts_of(text, RuledCuts(rule))
    assert marks == [int(at in offsets) for at in range(1, len(text) + 1)]
    assert not any(marks[-1:])  # in front of </s> nothing is cut


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ({"type": "whitespace"}, ["ein", "  haus,", " wo?"]),
        ({"type": "whitespace", "side": "after"}, ["ein  ", "haus, ", "wo?"]),
        ({"type": "punctuation"}, ["ein  haus", ", wo", "?"]),
        ({"type": "punctuation", "side": "after"}, ["ein  haus,", " wo?"]),
        ({"type": "characters", "characters": "aw"}, ["ein  h", "aus, ", "wo?"]),
        ({"type": "whitespace", "most": 3}, ["ein", "  h", "aus", ",", " wo", "?"]),
    ],
)
def test_pieces_by_rule(rule, shown):
    text = "ein  haus, wo?"
    assert pieces_of(text, RuledCuts(RuleCuts(**rule)).offsets(text)) == shown


def test_a_rules_cut_inside_a_symbol_is_left_out():
    by_rule = RuledCuts(RuleCuts(type="characters", characters="au "))
    assert by_rule.offsets("ein haus am see") == [3, 5, 6, 8, 9, 11]
    assert cuts_of("ein haus am see", by_rule, "word") == [1, 1, 1, 0]
    assert cuts_of("  haus ", RuledCuts(RuleCuts(type="whitespace")), "word") == [0]


def test_rules_that_differ_have_other_fingerprints():
    rules = [{}, {"side": "after"}, {"most": 3}, {"type": "punctuation"}]
    made = [RuledCuts(RuleCuts(**{"type": "whitespace"} | rule)).fingerprint for rule in rules]
    assert all(made.count(one) == 1 for one in made)


# Symbols


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
@given(text=st.sampled_from(TEXT) | st.text("ingrupe ☃\t", max_size=20))
@example(text="  jung  im ")
def test_symbols_end_where_their_vocabulary_cuts(symbol_vocabularies, kind, text):
    vocabulary = symbol_vocabularies[kind]
    _, spans = vocabulary.encode_spans(text)
    spelled = [text[a:b] for a, b in spans if b > a]
    pieces = pieces_of(text, text_cuts(SymbolCuts(type=kind, voc_limit=40), vocabulary).offsets(text))
    assert [piece.strip() for piece in pieces if piece.strip()] == spelled
    for piece in pieces[:-1]:  # white space is with what follows it
        assert not piece[-1:].isspace()


@pytest.fixture(scope="module")
def symbol_vocabularies():
    return {kind: train_vocabulary(kind, TEXT, 40) for kind in ("bpe", "unigram", "wordpiece")}


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_symbols_are_longer_than_characters_and_shorter_than_words(symbol_vocabularies, kind):
    source = text_cuts(SymbolCuts(type=kind, voc_limit=40), symbol_vocabularies[kind])
    pieces = [piece for text in TEXT for piece in pieces_of(text, source.offsets(text))]
    assert len(" ".join(TEXT).split()) < len(pieces) < sum(map(len, TEXT))
    assert any(piece.startswith(" ") and len(piece) > 2 for piece in pieces)


def test_the_symbols_of_another_kind_are_refused(symbol_vocabularies):
    for vocabulary in (None, symbol_vocabularies["bpe"]):
        with refuses(ValueError, "", "unigram"):
            text_cuts(SymbolCuts(type="unigram", voc_limit=40), vocabulary)


def test_unigrams_are_the_most_probable_pieces(symbol_vocabularies):
    """Against a plain search of all ways to cut a word."""
    vocabulary = symbol_vocabularies["unigram"]
    scores = dict(zip(vocabulary.tokens[4:], vocabulary.scores[4:], strict=True))

    def best(word):
        if not word:
            return 0.0
        ways = (scores[word[:n]] + best(word[n:]) for n in range(1, len(word) + 1) if word[:n] in scores)
        return max(ways, default=-1e9)

    for word in sorted({word for text in TEXT for word in text.split()}):
        ids = vocabulary.encode(word)
        assert UNK not in ids
        assert vocabulary.decode(ids) == word
        assert sum(vocabulary.scores[i] for i in ids) == pytest.approx(best(" " + word), abs=1e-9)


def test_unigrams_survive_saving_and_are_the_same_in_every_process(symbol_vocabularies, tmp_path):
    vocabulary = symbol_vocabularies["unigram"]
    vocabulary.save(tmp_path / "v.json")
    loaded = load_vocabulary(tmp_path / "v.json")
    assert loaded == vocabulary
    assert loaded.scores == vocabulary.scores
    assert loaded.encode("spielgruppen ☃") == vocabulary.encode("spielgruppen ☃")
    program = f"""
from caesura.data.vocabulary_training import train_vocabulary
print(train_vocabulary("unigram", {TEXT!r}, 40).fingerprint)"""
    for _ in range(2):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert done.stdout.strip() == vocabulary.fingerprint


@pytest.mark.parametrize("scores", [None, [], "x", [float("nan")], [1.0], [None], [-1e9]])
def test_wrong_scores_are_refused(symbol_vocabularies, tmp_path, scores):
    path = tmp_path / "v.json"
    symbol_vocabularies["unigram"].save(path)
    content = json.loads(path.read_bytes())
    whole = isinstance(scores, list) and len(scores) == 1
    content["scores"] = [*scores, *content["scores"][1:]] if whole else scores
    path.write_text(json.dumps(content))
    with refuses(InputError, f"{path}: ", "scores"):
        load_vocabulary(path)


@pytest.mark.parametrize(("lines", "size"), [(["abcdefgh"], 10), ([" "], 50)])
def test_unigrams_that_cannot_be_trained_are_refused(lines, size):
    with refuses(InputError):
        train_vocabulary("unigram", lines, size)


# Files


def from_file(path: Path, texts: list[str], kind: str = "char", unread=()) -> list[list[int]]:
    numbered = Numbered(texts, train_vocabulary(kind, [*texts, "x"]))
    cut = numbered.cut_by(OffsetFile(path), "dev.de", unread).cuts
    assert cut is not None
    return [marks.tolist() for marks in cut]


@pytest.mark.parametrize(("suffix", "opener"), [("", open), (".gz", gzip.open), (".xz", lzma.open)])
def test_offsets_come_from_a_file(tmp_path, suffix, opener):
    path = tmp_path / f"cuts{suffix}"
    with opener(path, "wb") as file:
        file.write(b"1 3\n\n  2\n")
    assert from_file(path, ["abcd", "", "abc"]) == [[1, 0, 1, 0], [], [0, 1, 0]]


def test_offsets_between_words_may_be_on_either_side_of_white_space(tmp_path):
    path = tmp_path / "cuts"
    path.write_text("3\n4\n5\n3 10\n")
    texts = ["ein  haus am see"] * 4
    assert from_file(path, texts, "word") == [[1, 0, 0, 0]] * 3 + [[1, 1, 0, 0]]


@pytest.mark.parametrize(
    ("line", "offset"),
    [("0", "0"), ("4", "4"), ("3 2", "2"), ("1 1", "1"), ("1 x", "'x'"), ("-1", "'-1'"), ("1 99", "99")],
)
def test_wrong_offsets_are_told_with_file_line_and_offset(tmp_path, line, offset):
    path = tmp_path / "cuts"
    path.write_text(f"1\n{line}\n")
    with refuses(InputError, f"{path}:2: ", f" {offset}"):
        from_file(path, ["abcd", "abcd"])
    assert from_file(path, ["abcd", ""], unread=[2]) == [[1, 0, 0, 0], []]  # too long to be read


@pytest.mark.parametrize("line", ["1", "5", "3 6", "11"])
def test_an_offset_that_is_not_between_two_symbols_is_told(tmp_path, line):
    path = tmp_path / "cuts"
    path.write_text(f"\n{line}\n")
    with refuses(InputError, f"{path}:2: offset {line.split()[-1]} "):
        from_file(path, ["ein haus", "ein haus am "], "word")


@pytest.mark.parametrize(("lines", "texts"), [(1, 3), (5, 3), (0, 1)])
def test_another_number_of_lines_is_told_with_both_counts(tmp_path, lines, texts):
    path = tmp_path / "cuts"
    path.write_text("1\n" * lines)
    with refuses(InputError, "", f"dev.de has {texts} ", f"{path} has {lines} "):
        from_file(path, ["abc"] * texts)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with refuses(InputError, f"{tmp_path}/nowhere: "):
        from_file(tmp_path / "nowhere", ["a"])


# What a caller gives

CHARS = np.array([[i, i + 1] for i in range(4)], np.int32)


@pytest.mark.parametrize(
    ("entry", "cuts", "marks"),
    [
        (None, None, None),
        (None, [0, 1, 0, 0], [0, 1, 0, 0]),
        ([], None, [-1, -1, -1, 0]),
        ([1, 3], [0, 1, 0, 0], [1, -1, 1, 0]),
        (np.array([2]), None, [-1, 1, -1, 0]),
        ({3: -1, 1: 1}, None, [1, 0, -1, 0]),
        ({3: 1, 2: -1}, [0, 1, 0, 0], [0, -1, 1, 0]),
        ({}, None, [0, 0, 0, 0]),
    ],
)
def test_offsets_replace_what_there_is_and_a_mapping_is_laid_over_it(entry, cuts, marks):
    before = None if cuts is None else np.array(cuts, np.int8)
    combined = combine(entry, before, "abcd", CHARS, "sentence 1")
    assert (None if combined is None else combined.tolist()) == marks
    assert before is None or before.tolist() == cuts


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ([0], "offset 0"),
        ([4], "offset 4"),
        ([-1], "offset -1"),
        ([3, 1], "offset 1"),
        ([2, 2], "offset 2"),
        ({9: 1}, "offset 9"),
        ({1: 2}, "offset 1"),
        ([1.5], "1.5"),
        ("12", "12"),
        (7, "7"),
    ],
)
def test_wrong_cuts_are_told_with_the_sentence_and_the_offset(entry, place):
    with refuses(InputError, "sentence 5: ", place):
        combine(entry, None, "abcd", CHARS, "sentence 5")


def test_given_cuts_between_words_are_between_symbols():
    words = np.array([[0, 3], [4, 8]], np.int32)
    assert combine([3], None, "ein haus", words, "x").tolist() == [1, 0]
    assert combine([4], None, "ein haus", words, "x").tolist() == [1, 0]
    with refuses(InputError, "x: offset 5 "):
        combine({5: -1}, None, "ein haus", words, "x")
