"""The corpus: splits by number, coverage, typos, files."""

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wording import refuses

from caesura.data.numerals import (
    FORMS,
    LANGUAGES,
    Example,
    HeldOut,
    boundaries,
    example,
    make_corpus,
    spell,
    split_of,
    write_corpus,
)
from caesura.data.numerals.__main__ import main
from caesura.data.numerals.typos import with_typo
from caesura.errors import InputError

FILES = ["train", "dev", "test", "test.long", "test.typo"]
SMALL = HeldOut(dev=40, test=80, long=40, typo=40)


def is_one_edit(a: str, b: str) -> bool:
    """Whether b is a with one character dropped or replaced, or two neighbours swapped."""
    if len(b) == len(a) - 1:
        return any(a[:i] + a[i + 1 :] == b for i in range(len(a)))
    differ = [i for i in range(len(a)) if a[i : i + 1] != b[i : i + 1]]
    swapped = len(differ) == 2 and differ[1] == differ[0] + 1 and a[differ[0]] == b[differ[1]]
    return len(a) == len(b) and (len(differ) == 1 or (swapped and a[differ[1]] == b[differ[0]]))


@pytest.mark.parametrize("language", ["de", "zh"])
def test_default_sizes(language: str) -> None:
    corpus = make_corpus(language)
    assert {name: len(examples) for name, examples in corpus.items()} == {
        "train": 20_000,
        "dev": 500,
        "test": 1000,
        "test.long": 500,
        "test.typo": 500,
    }


@settings(max_examples=15)
@given(st.sampled_from(LANGUAGES), st.integers(1, 30_000), st.integers(0, 5))
def test_a_number_is_in_one_split_whatever_its_form(language: str, largest: int, seed: int) -> None:
    corpus = make_corpus(language, ("cardinal", "ordinal"), 400, largest, seed, SMALL)
    numbers = {name: {e.number for e in corpus[name]} for name in FILES[:4]}
    for a, b in itertools.combinations(numbers.values(), 2):
        assert not a & b
    for name in FILES[:3]:
        assert {split_of(number, seed) for number in numbers[name]} <= {name}
        assert all(number <= largest for number in numbers[name])


def test_years_share_the_split_of_their_number_and_dates_have_their_own() -> None:
    corpus = make_corpus("fr", FORMS, 3000, seed=4, held_out=SMALL)
    for name in FILES[:3]:
        assert {e.form for e in corpus[name]} == set(FORMS)
        assert {split_of(e.number, 4) for e in corpus[name]} == {name}
    trained, tested = ({e.source for e in corpus[name]} for name in ("train", "test"))
    assert not trained & tested


def test_a_source_occurs_once_with_one_target() -> None:
    for language in LANGUAGES:
        corpus = make_corpus(language, FORMS, 3000, held_out=SMALL)
        sources = [e.source for name in FILES[:4] for e in corpus[name]]
        assert len(set(sources)) == len(sources)


def test_forms_share_a_split_evenly() -> None:
    counts = Counter(e.form for e in make_corpus("de", FORMS, 4000, held_out=SMALL)["train"])
    assert set(counts) == set(FORMS)
    assert max(counts.values()) - min(counts.values()) < 400


def test_small_numbers_are_covered() -> None:
    train = [e.number for e in make_corpus("de", size=2000, held_out=SMALL)["train"]]
    lengths = Counter(len(str(number)) for number in train)
    expected = {n for n in range(100) if split_of(n, 1) == "train"}
    assert expected <= set(train)
    assert abs(lengths[4] - lengths[5]) < 120
    assert lengths[3] > 400
    assert train[:50] != sorted(train[:50])


def test_there_is_no_zeroth() -> None:
    train = make_corpus("fr", ["ordinal"], 100, largest=50, held_out=SMALL)["train"]
    assert {e.number for e in train} == {n for n in range(1, 51) if split_of(n, 1) == "train"}


def test_zero_is_always_trained_on() -> None:
    assert {split_of(0, seed) for seed in range(200)} == {"train"}


def test_split_shares() -> None:
    counts = Counter(split_of(number, 7) for number in range(1, 20_001))
    assert abs(counts["dev"] - 1000) < 150
    assert abs(counts["test"] - 2000) < 200


@pytest.mark.parametrize(("largest", "digits"), [(99_999, 6), (500, 4), (9, 2), (100_000, 7)])
def test_long_numbers_have_one_digit_more(largest: int, digits: int) -> None:
    corpus = make_corpus("de", size=50, largest=largest, held_out=SMALL)
    assert len(corpus["test.long"]) == 40
    assert {len(str(e.number)) for e in corpus["test.long"]} == {digits}


def test_a_small_population_is_written_whole() -> None:
    corpus = make_corpus(
        "ja", size=1000, largest=120, held_out=HeldOut(dev=1000, test=1000, long=10_000, typo=10)
    )
    numbers = [e.number for name in FILES[:3] for e in corpus[name]]
    assert sorted(numbers) == [*range(121)]
    assert sorted(e.number for e in corpus["test.long"]) == [*range(1000, 10_000)]


def test_the_largest_corpus_has_no_longer_numbers() -> None:
    corpus = make_corpus("zh", size=50, largest=999_999_999, held_out=SMALL)
    assert max(e.number for e in corpus["train"]) > 10**8
    assert corpus["test.long"] == []


def test_corpora_differ_by_seed_and_only_by_seed() -> None:
    a, b, c = (make_corpus("de", FORMS, 300, seed=seed, held_out=SMALL) for seed in (1, 1, 2))
    assert a == b
    assert all(a[name] != c[name] for name in FILES)


@pytest.mark.parametrize("language", LANGUAGES)
def test_typos_are_one_edit_of_a_test_source(language: str) -> None:
    corpus = make_corpus(language, FORMS, 1000, held_out=HeldOut(test=300, typo=300))
    clean = {(e.number, e.form): e for e in corpus["test"]}
    assert len(corpus["test.typo"]) > 200
    for typo in corpus["test.typo"]:
        original = clean[typo.number, typo.form]
        assert is_one_edit(original.source, typo.source), (original.source, typo.source)
        assert typo.target == original.target
        cuts = (0, *typo.bounds, len(typo.source))
        assert all(a < b for a, b in itertools.pairwise(cuts))
    if language in ("de", "fr", "ja-kana"):
        dropped = [len(clean[e.number, e.form].source) - len(e.source) for e in corpus["test.typo"]]
        assert 0.2 < sum(dropped) / len(dropped) < 0.6


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_typo_never_spells_another_number(language: str) -> None:
    spellings = {"".join(spell(n, language, form)) for form in ("cardinal", "ordinal") for n in range(11_000)}
    spellings |= {"".join(spell(n, language, "year")) for n in range(1, 3000)}
    alphabet = "".join(sorted(set("".join(spellings)) - set(" -")))
    rng = random.Random(5)
    made = 0
    for number in range(0, 10_000, 13):
        for form in ("cardinal", "year" if 0 < number < 3000 else "ordinal"):
            typo = with_typo(example(number, language, form), language, alphabet, rng)
            made += typo is not None
            assert typo is None or typo.source not in spellings
    assert made > 800


def test_no_typo_is_better_than_a_misleading_one() -> None:
    for number in (0, 3, 10):
        assert with_typo(example(number, "ja"), "ja", "一二三四五六七八九", random.Random(1)) is None


def test_boundaries_move_with_their_characters() -> None:
    clean = example(723, "de")
    marked = {"|".join(_cut(clean.source, clean.bounds))}
    for seed in range(300):
        typo = with_typo(clean, "de", "x", random.Random(seed))
        assert typo is not None
        marked.add("|".join(_cut(typo.source, typo.bounds)))
    assert {
        "ieben|hundert|drei|und|zwanzig",
        "siebe|hundert|drei|und|zwanzig",
        "sieben|undert|drei|und|zwanzig",
        "siebeh|nundert|drei|und|zwanzig",
        "sieben|hundert|drei|unx|zwanzig",
        "sieben|hundert|drei|und|zwanzi",
    } <= marked


def test_a_dropped_morph_takes_its_boundary_along() -> None:
    clean = Example("abc", "t", (1, 2), 7, "cardinal")
    seen = set()
    for seed in range(100):
        typo = with_typo(clean, "de", "x", random.Random(seed))
        assert typo is not None
        seen.add((typo.source, typo.bounds))
    assert {("bc", (1,)), ("ac", (1,)), ("ab", (1,)), ("bac", (1, 2)), ("axc", (1, 2))} <= seen


def _cut(text: str, bounds: tuple[int, ...]) -> list[str]:
    return [text[a:b] for a, b in itertools.pairwise((0, *bounds, len(text)))]


def test_files_hold_what_was_made(tmp_path: Path) -> None:
    paths = write_corpus(tmp_path / "new" / "folder", "fr", FORMS, 200, seed=3, held_out=SMALL)
    corpus = make_corpus("fr", FORMS, 200, seed=3, held_out=SMALL)
    assert {name: path.name for name, path in paths.items()} == {name: f"{name}.tsv" for name in FILES}
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == sorted(
        f"{name}.tsv" for name in FILES
    )
    for name, path in paths.items():
        lines = path.read_bytes().decode("utf-8").split("\n")
        assert lines.pop() == ""
        rows = [line.split("\t") for line in lines]
        parsed = [(source, target, tuple(map(int, bounds.split()))) for source, target, bounds in rows]
        assert parsed == [(e.source, e.target, e.bounds) for e in corpus[name]]
    for source, _, bounds in (line.split("\t") for line in paths["train"].read_text("utf-8").splitlines()):
        separators = [i for i, char in enumerate(source) if char in " -"]
        assert [int(bound) for bound in bounds.split()] == separators


def test_files_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_corpus(tmp_path / name, "ja-kana", FORMS, 300, held_out=SMALL)
    for name in FILES:
        assert (tmp_path / "a" / f"{name}.tsv").read_bytes() == (tmp_path / "b" / f"{name}.tsv").read_bytes()


def test_the_first_lines_stay_as_they_are(tmp_path: Path) -> None:
    """Published results name a seed: it must give the same corpus on every machine and in every version."""
    paths = write_corpus(tmp_path, "de", size=20, largest=99_999, seed=1, held_out=HeldOut(2, 2, 2, 2))
    assert {name: path.read_text("utf-8").splitlines()[0] for name, path in paths.items()} == FIRST_LINES


FIRST_LINES = {
    "train": "dreihundertzwanzig\tthree hundred and twenty\t4 11",
    "dev": "vierhundertzwei\tfour hundred and two\t4 11",
    "test": "sechsundachtzig\teighty-six\t5 8",
    "test.long": (
        "neunhunderteinundsechzigtausendfünfhundertfünfundsechzig\t"
        "nine hundred and sixty-one thousand five hundred and sixty-five\t4 11 14 17 24 31 35 42 46 49"
    ),
    "test.typo": "sechsundacthzig\teighty-six\t5 8",
}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"language": "xx"}, "language 'xx'"),
        ({"language": "en"}, "language 'en'"),
        ({"forms": ["cardinal", "roman"]}, "form 'roman'"),
        ({"forms": []}, "form"),
        ({"size": -1}, "size is -1"),
        ({"held_out": HeldOut(typo=-3)}, "typo is -3"),
        ({"largest": 0}, "largest is 0"),
        ({"largest": 10**9}, "largest is 1000000000"),
        ({"forms": ["date", "year"], "largest": 999}, "largest is 999"),
    ],
)
def test_bad_arguments_are_named(tmp_path: Path, arguments: dict, wrong: str) -> None:
    with refuses(InputError, "", wrong):
        write_corpus(tmp_path / "out", **arguments)
    assert not (tmp_path / "out").exists()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with refuses(InputError, "", tmp_path / "file"):
        write_corpus(tmp_path / "file", size=5, held_out=SMALL)


def test_empty_splits_give_empty_files(tmp_path: Path) -> None:
    paths = write_corpus(tmp_path, size=0, held_out=HeldOut(0, 0, 0, 0))
    assert [path.read_bytes() for path in paths.values()] == [b""] * 5


def test_the_program_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--size", "30", "--dev", "3", "--test", "9", "--long", "4", "--typo", "2"]
    assert main(["--language", "zh", "--out", str(tmp_path), "--forms", "cardinal,year", *sizes]) == 0
    printed = capsys.readouterr().out.splitlines()
    counts = dict(zip(FILES, (30, 3, 9, 4, 2), strict=True))
    assert printed == [f"{tmp_path / name}.tsv\t{count} examples" for name, count in counts.items()]
    for name, count in counts.items():
        assert len((tmp_path / f"{name}.tsv").read_text("utf-8").splitlines()) == count


def test_the_program_names_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--language", "klingon", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "unknown language 'klingon': choose from de, fr, ja, ja-kana, zh\n"


def test_boundaries_of_one_morph() -> None:
    assert boundaries(("null",)) == ()
    assert boundaries(("a", "bc", "d")) == (1, 3)
