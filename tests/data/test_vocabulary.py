import json
import random
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from wording import refuses

from caesura.data.vocabulary import BOS, EOS, KINDS, PAD, SPECIALS, UNK, CharVocabulary, Vocabulary
from caesura.data.vocabulary_file import load_vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError

GERMAN = ["die jungtiere spielen", "junge tiere spielen im grünen gras", "das tier ist jung", "jung und grün"]
JAPANESE = ["私は東京に行きます。", "東京は大きいです。", "私は京都に行きました。", "大きい 東京"]
CHINESE = ["我们去北京。", "北京很大。", "我们不去北京", "他们去了上海。𠮷"]
LITERAL = ["<unk> <unk>x x<unk> </s> </s>y <s> <pad> a@@ ##b a</w> <unk>"] * 5
TEXT = GERMAN * 3 + JAPANESE * 3 + CHINESE * 3 + LITERAL
SIZE = {"char": None, "byte": None, "word": None, "bpe": 400, "wordpiece": 400}
LEARNT = [kind for kind in KINDS if kind != "byte"]

# Every code point that a line can hold: astral planes, combining marks, controls, U+2028 ...
anything = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))
awkward = st.text(st.sampled_from("jtuniger 東京。𠮷☃e\u0301\t\u3000\u2028\x85\x1c\xa0<>/ks@#"))


@pytest.fixture(scope="module", params=KINDS)
def vocabulary(request):
    return train_vocabulary(request.param, iter(TEXT), SIZE[request.param])


@pytest.fixture(scope="module")
def vocabularies():
    return {kind: train_vocabulary(kind, iter(TEXT), SIZE[kind]) for kind in KINDS}


@given(anything)
@example("a\u2028b\x85c\td e\u0301\U0001f600\U0010ffff \r")
def test_characters_give_back_any_text_they_know(text):
    vocabulary = train_vocabulary("char", [text, "x"])
    assert vocabulary.decode(vocabulary.encode(text)) == text
    assert UNK not in vocabulary.encode(text)


@settings(max_examples=12)
@given(text=anything, kind=st.sampled_from(KINDS))
def test_any_vocabulary_survives_saving(tmp_path_factory, text, kind):
    vocabulary = train_vocabulary(kind, [text, "x y"], SIZE[kind])
    path = tmp_path_factory.mktemp("saved") / "vocabulary.json"
    vocabulary.save(path)
    loaded = load_vocabulary(path)
    assert (loaded.kind, loaded.tokens) == (kind, vocabulary.tokens)
    assert loaded.fingerprint == vocabulary.fingerprint
    assert loaded.encode_spans(text) == vocabulary.encode_spans(text)


@given(text=anything | awkward)
@example("  私は\u3000東京 <unk>\t☃☃x \x1cjungtiere\x1f")
def test_spans_cover_the_text_in_order(vocabularies, text):
    for kind, vocabulary in vocabularies.items():
        ids, spans = vocabulary.encode_spans(text)
        assert ids == vocabulary.encode(text)
        assert len(ids) == len(spans)
        covered = [i for start, end in spans for i in range(start, end)]
        if kind == "char":
            assert spans == [(i, i + 1) for i in range(len(text))]
        elif kind == "byte":
            assert covered == [*range(len(text))]
        else:
            assert covered == [i for i, c in enumerate(text) if not c.isspace()]
        assert all(start < end for start, end in spans) or kind == "byte"
        assert sum(end - start for start, end in spans) == len(covered)


@given(
    words=st.lists(st.sampled_from(sorted(set(" ".join(TEXT).split())))),
    space=st.sampled_from(" \t\u3000\x1c"),
)
def test_words_of_the_training_text_come_back_with_one_space_between(vocabularies, words, space):
    for kind in ("word", "bpe", "wordpiece"):
        vocabulary = vocabularies[kind]
        ids = vocabulary.encode(space + (space * 2).join(words))
        assert UNK not in ids
        assert vocabulary.decode(ids) == " ".join(words)


@pytest.mark.parametrize("line", GERMAN + JAPANESE + CHINESE + LITERAL[:1])
def test_training_text_comes_back(vocabulary, line):
    ids = vocabulary.encode(line)
    assert vocabulary.decode(ids) == line
    assert min(ids) >= len(SPECIALS)


def test_text_spelled_like_a_special_is_text(vocabulary):
    for word in SPECIALS:
        ids = vocabulary.encode(f"{word} {word}x")
        assert not {PAD, BOS, EOS} & set(ids), word
    without = train_vocabulary(vocabulary.kind, GERMAN * 3, SIZE[vocabulary.kind])
    for word in SPECIALS:
        assert not {PAD, BOS, EOS} & set(without.encode(f"{word} {word}tier")), word


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_marks_of_the_usual_notations_are_text(kind):
    lines = ["a@@ b ##b b</w> c a ab"] * 5
    vocabulary = train_vocabulary(kind, lines, 200)
    assert vocabulary.decode(vocabulary.encode(lines[0])) == lines[0]
    assert len({tuple(vocabulary.encode(w)) for w in lines[0].split()}) == len(lines[0].split())


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_new_character_is_one_unknown_and_a_known_one_never_is(kind):
    vocabulary = train_vocabulary(kind, ["abc abc", "東京に行く。"] * 3, 100)
    ids, spans = vocabulary.encode_spans("ab☃c 東☃☃に")
    assert [span for i, span in zip(ids, spans, strict=True) if i == UNK] == [(2, 3), (6, 7), (7, 8)]
    for text in ("cba", "。に東", "a", "く"):  # in places where they were not seen
        assert UNK not in vocabulary.encode(text)


def test_a_long_text_without_spaces_is_cut(vocabulary):
    text = "".join(JAPANESE[:3] + CHINESE) * 100
    ids, spans = vocabulary.encode_spans(text)
    if vocabulary.kind == "word":
        assert (ids, spans) == ([UNK], [(0, len(text))])
    else:
        assert UNK not in ids
        assert vocabulary.decode(ids).replace(" ", "") == text


def test_display_shows_where_words_are_cut():
    bpe = train_vocabulary("bpe", ["jungs junge jungen tiere"] * 9, 60)
    assert " ".join(bpe.display(bpe.encode("jungtiere tiere"))) == "jung@@ tiere tiere"
    wordpiece = train_vocabulary("wordpiece", ["tier atier btier ctier"] * 9, 60)
    assert wordpiece.display([BOS, *wordpiece.encode("tiertier"), EOS]) == ["<s>", "tier", "##tier", "</s>"]
    word = train_vocabulary("word", ["ein tier"])
    assert word.display(word.encode("ein hund")) == ["ein", "<unk>"]


def test_decoding_stops_at_the_end_and_skips_padding(vocabulary):
    ids = vocabulary.encode("das tier")
    assert vocabulary.decode([BOS, PAD, *ids, EOS, *ids]) == "das tier"
    assert vocabulary.decode([UNK]) == "<unk>"
    assert vocabulary.decode([]) == ""


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic_and_takes_a_generator(kind):
    words = ["ab", "cd", "efg", "hij", "klm", "nop", "qrs"]
    lines = [" ".join(random.Random(i).choices(words, k=5)) for i in range(200)]
    made = {train_vocabulary(kind, (line for line in lines), SIZE[kind]).fingerprint for _ in range(4)}
    assert len(made) == 1


@pytest.mark.parametrize("kind", LEARNT)
def test_the_size_includes_the_specials(kind):
    whole = train_vocabulary(kind, TEXT, SIZE[kind])
    smaller = train_vocabulary(kind, TEXT, len(whole) - 5)
    assert len(smaller) == len(whole) - 5
    assert smaller.tokens == whole.tokens[:-5]
    assert tuple(whole.tokens[:4]) == SPECIALS
    assert smaller.fingerprint != whole.fingerprint


def test_the_most_frequent_come_first():
    vocabulary = train_vocabulary("char", ["bbaac", "bbaa", "d"], 7)
    assert vocabulary.tokens[4:] == ["a", "b", "c"]
    assert train_vocabulary("word", ["b a", "b"]).tokens[4:] == ["b", "a"]


@pytest.mark.parametrize(
    ("kind", "lines", "size"),
    [
        ("letters", ["a"], None),
        ("bpe", ["a"], None),
        ("char", ["a"], 4),
        ("char", [], None),
        ("word", [" ", ""], None),
        ("bpe", ["", " "], 50),
        ("wordpiece", ["abcdefgh"], 10),
        ("byte", ["a"], 259),
        ("byte", ["", ""], None),
    ],
)
def test_what_cannot_be_trained_is_refused(kind, lines, size):
    with refuses(InputError):
        train_vocabulary(kind, lines, size)


def test_an_error_of_the_reader_comes_through():
    def lines():
        yield "a b"
        raise InputError("train.de:2: invalid UTF-8")

    for kind in KINDS:
        with pytest.raises(InputError, match=r"train\.de:2"):
            train_vocabulary(kind, lines(), 300)


@pytest.mark.parametrize("never", ["\n", "\0", "\ud800"])
@pytest.mark.parametrize("kind", LEARNT)
def test_what_no_line_holds_is_no_token(tmp_path, kind, never):
    if kind == "char" or never != "\n":  # elsewhere it is white space
        with pytest.raises((InputError, UnicodeEncodeError)):
            train_vocabulary(kind, [f"a{never}b"], 50)
    path = tmp_path / "v.json"
    train_vocabulary(kind, ["ab a b"], 50).save(path)
    content = json.loads(path.read_bytes())
    token = never if kind == "char" else f"a{never}"
    content["tokens"].append(token)
    content.pop("counts", None)
    path.write_text(json.dumps(content))
    with refuses(InputError, f"{path}: ", repr(token), kind):
        load_vocabulary(path)


def test_the_file_has_one_token_a_line(tmp_path):
    path = tmp_path / "v.json"
    train_vocabulary("char", ["ä\u2028東"]).save(path)
    lines = path.read_text("utf-8").split("\n")
    assert '"東",' in lines or '"東"]}' in lines
    assert any("\\u2028" in line for line in lines)
    assert [p.name for p in tmp_path.iterdir()] == ["v.json"]


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (lambda c: c.update(format=2), '"format"'),
        (lambda c: c.update(kind="syllable"), '"kind"'),
        (lambda c: c.update(kind=["char"]), '"kind"'),
        (lambda c: c.update(tokens="abc"), '"tokens"'),
        (lambda c: c["tokens"].append(7), '"tokens"'),
        (lambda c: c["tokens"].pop(0), '"tokens"'),
        (lambda c: c["tokens"].append(c["tokens"][5]), "token '"),
        (lambda c: c["tokens"].append(""), "''"),
        (lambda c: c["tokens"].append("a b"), "'a b'"),
        (lambda c: c.update(tokens=list(SPECIALS)), '"tokens"'),
        (lambda c: c.pop("merges"), '"merges"'),
        (lambda c: c["merges"].append(["zz", "q"]), "'zz'"),
        (lambda c: c["merges"].append("ab"), '"merges"'),
    ],
)
def test_a_spoilt_file_is_refused_by_name(tmp_path, change, wrong):
    path = tmp_path / "spoilt.json"
    train_vocabulary("bpe", GERMAN * 3, 60).save(path)
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))
    with refuses(InputError, f"{path}: ", wrong):
        load_vocabulary(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b"null", b'{"format": 1}'])
def test_what_is_no_vocabulary_is_refused(tmp_path, content):
    path = tmp_path / "v.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"v\.json"):
        load_vocabulary(path)
    with refuses(InputError, tmp_path / "missing.json"):
        load_vocabulary(tmp_path / "missing.json")


def test_a_file_of_an_earlier_version_may_have_counts(tmp_path):
    vocabulary, path = train_vocabulary("char", TEXT), tmp_path / "v.json"
    vocabulary.save(path)
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"counts": [1] * len(vocabulary)}))
    assert load_vocabulary(path) == vocabulary


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_word_of_a_million_characters_does_not_hold_up_training(kind: str) -> None:
    lines = ["eins zwei", "xy" * 500_000, "neun"]
    started = time.monotonic()
    vocabulary = train_vocabulary(kind, lines, 60)
    assert time.monotonic() - started < 60  # by the square of its length it would be hours
    for line in lines:
        assert vocabulary.decode(vocabulary.encode(line)) == line


@given(ids=st.lists(st.integers(0, 12), max_size=20))
def test_spans_of_what_a_character_vocabulary_writes_are_those_of_any(ids):
    vocabulary = CharVocabulary([*"abcdefghi"])
    assert vocabulary.decode_spans(ids) == Vocabulary.decode_spans(vocabulary, ids)
