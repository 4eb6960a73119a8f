"""Bytes as symbols, and as the spelling of characters that a vocabulary lacks."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wording import refuses

from caesura.data.cuts import TextCuts, combine, places_of, symbols_before
from caesura.data.utf8 import BYTES, from_bytes, sizes
from caesura.data.vocabulary import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    ByteVocabulary,
    SpelledVocabulary,
    Vocabulary,
)
from caesura.data.vocabulary_file import load_vocabulary
from caesura.data.vocabulary_training import train_vocabulary
from caesura.errors import InputError
from caesura.output import cut_texts

VOCABULARIES = [ByteVocabulary(), SpelledVocabulary([*"anü東"])]
# Every code point that a line can hold.
lines = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]))
texts = lines | st.text(st.sampled_from("aün東☃𠮷e\u0301 \x85\u2028�"))
vocabularies = st.sampled_from(VOCABULARIES)


@given(vocabulary=vocabularies, text=texts)
def test_any_text_comes_back_and_nothing_is_unknown(vocabulary: Vocabulary, text: str) -> None:
    ids = vocabulary.encode(text)
    assert vocabulary.decode([BOS, PAD, *ids, EOS, *ids]) == text
    assert UNK not in ids
    assert vocabulary.encode_spans(text)[0] == ids
    assert vocabulary.decode_spans(ids) == (text, vocabulary.encode_spans(text)[1])


@given(vocabulary=vocabularies, text=texts)
def test_the_first_byte_of_a_character_covers_it(vocabulary: Vocabulary, text: str) -> None:
    ids, spans = vocabulary.encode_spans(text)
    assert [span for span in spans if span[0] < span[1]] == [(i, i + 1) for i in range(len(text))]
    for i, (start, end) in enumerate(spans):
        spelled = "".join(vocabulary.decode([j]) for j in ids[i : i + 1])
        assert start == end or vocabulary.encode(text[start])[0] == ids[i]
        assert start < end or (start == spans[i - 1][1] and spelled == "�")


@given(vocabulary=vocabularies, text=texts)
def test_each_offset_cuts_between_the_symbols_of_two_characters(vocabulary: Vocabulary, text: str) -> None:
    ids, spans = vocabulary.encode_spans(text)
    offsets = [*range(1, len(text))]
    after, between = symbols_before(offsets, places_of(spans))
    assert between.all()
    for offset, symbol in zip(offsets, after.tolist(), strict=True):
        assert vocabulary.decode(ids[: symbol + 1]) == text[:offset]
    marks = TextCuts.marks(offsets, places_of(spans))
    assert marks.sum() == len(offsets)
    given_cuts = combine(offsets, None, text, places_of(spans), "here")
    assert given_cuts is not None
    assert ((given_cuts == 1) == (marks == 1)).all()


@given(vocabulary=vocabularies, text=texts.filter(bool), data=st.data())
def test_cuts_anywhere_leave_the_text_whole(vocabulary: Vocabulary, text: str, data: st.DataObject) -> None:
    _, spans = vocabulary.encode_spans(text)
    ends = data.draw(st.lists(st.booleans(), min_size=len(spans), max_size=len(spans)))
    [cut] = cut_texts([text], [places_of(spans)], ends, [1.0] * len(spans), None)
    assert "".join(cut.pieces) == "".join(cut.shown) == text
    assert len(cut.pieces) == sum(ends[:-1]) + 1 == len(cut.covered)  # one per segment
    assert all(cut.shown)
    assert cut.bounds == sorted({end for (_, end), cut in zip(spans, ends, strict=True) if cut} - {len(text)})
    assert cut.covered == [*map(len, cut.pieces)]


@given(
    st.binary()
    | st.lists(st.sampled_from([*b"a\n\0\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\xed\xa0\xff"])).map(bytes)
)
@example(b"\xe2\x82a\xf0\x9f\x98\x80\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80")
def test_any_bytes_are_text(content: bytes) -> None:
    text = from_bytes(content)
    assert text == content.decode("utf-8", "replace").replace("\n", "�").replace("\0", "�")
    counts = [*sizes(content)]
    assert len(counts) == len(text)
    assert sum(counts) == len(content)


@given(vocabulary=vocabularies, ids=st.lists(st.integers(0, 263)))
def test_whatever_a_model_writes_has_a_text_and_spans(vocabulary: Vocabulary, ids: list[int]) -> None:
    ids = [i % len(vocabulary) for i in ids]
    kept = ids[: ids.index(EOS)] if EOS in ids else ids
    text, spans = vocabulary.decode_spans(ids)
    assert text == vocabulary.decode(ids)
    assert "\n" not in text
    assert "\0" not in text
    assert len(spans) == len(kept) == len(vocabulary.display(kept))
    assert [at for start, end in spans for at in range(start, end)] == [*range(len(text))]
    text.encode()


def test_training_leaves_to_bytes_what_comes_once_or_has_no_room() -> None:
    text = ["aab☃", "abb東", "ü"]
    spelled = train_vocabulary("char", text, byte_fallback=True)
    assert spelled.tokens == [*SPECIALS, *BYTES, "a", "b"]
    assert spelled.kind == "char"
    assert train_vocabulary("char", text, 261, byte_fallback=True).tokens[-2:] == [BYTES[-1], "a"]
    assert spelled.encode("a☃") == [260, *(4 + byte for byte in "☃".encode())]
    assert spelled.display(spelled.encode("xaü")) == ["x", "a", "<0xC3>", "<0xBC>"]
    assert len(train_vocabulary("byte", text)) == 260
    for kind, size in (("char", 200), ("word", None)):
        with refuses(InputError):
            train_vocabulary(kind, text, size, byte_fallback=True)
    with refuses(InputError, "no text"):
        train_vocabulary("char", ["", ""], byte_fallback=True)


@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=["byte", "spelled"])
def test_saved_vocabularies_come_back_and_spoilt_ones_are_refused(tmp_path, vocabulary: Vocabulary) -> None:
    path = tmp_path / "vocabulary.json"
    vocabulary.save(path)
    loaded = load_vocabulary(path)
    assert loaded == vocabulary
    assert type(loaded) is type(vocabulary)
    content = json.loads(path.read_bytes())
    tokens = content["tokens"]
    for spoilt in (
        tokens[:100],
        [*tokens, "<0x00>x"],
        [*tokens[:5], "<0xFF>", *tokens[6:-1]],
        [*tokens, "ab"],
    ):
        path.write_text(json.dumps(content | {"tokens": spoilt}))
        with refuses(InputError, path):
            load_vocabulary(path)


def test_vocabularies_without_bytes_are_as_they_were() -> None:
    """Their fingerprints decide whether numbered text of earlier versions is still good."""
    prints = [train_vocabulary(kind, ["ein tier", "tiere"]).fingerprint for kind in ("char", "word")]
    assert prints == ["8cfd4b6bed70940d4d09149ef0439b2c", "9ee51789f52d144433180466a8daeeda"]
