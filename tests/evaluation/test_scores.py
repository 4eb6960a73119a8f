"""Scores agree with sacrebleu's own functions and with numbers worked by hand."""

import logging
import os

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.errors import InputError
from caesura.evaluation import ngrams, scores
from caesura.evaluation.scores import paired_bootstrap, score

REFERENCES = [
    "The cat sat on the mat today .",
    "A dog ran over the long road .",
    "He said that it was fine , really .",
    "seven hundred and twenty-three days , 50% gone .",
]
HYPOTHESES = [
    "The cat sat on a mat today .",
    "a dog ran over the long road .",
    "He said it was fine , really .",
    "seven hundred and twenty days , 50% gone .",
]
WORSE = ["The cat .", "a dog ran .", "It was .", "seven days gone ."]


@pytest.mark.parametrize("tokenize", ["13a", "none", "char"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_scores_are_sacrebleus(tokenize, lowercase):
    scores = score(HYPOTHESES, REFERENCES, tokenize=tokenize, lowercase=lowercase)
    bleu = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES], tokenize=tokenize, lowercase=lowercase, force=True)
    six = sacrebleu.CHRF(lowercase=lowercase).corpus_score(HYPOTHESES, [REFERENCES])
    two = sacrebleu.CHRF(char_order=2, lowercase=lowercase).corpus_score(HYPOTHESES, [REFERENCES])
    assert (scores.bleu, scores.chrf, scores.chrf_bigram) == (bleu.score, six.score, two.score)
    assert scores.sentences == 4


# Few letters, so that n-grams recur, and any character.
LINES = st.text("ab Ab.", max_size=12) | st.text(max_size=9) | st.text("abc", min_size=20, max_size=60)
# What 13a looks at, in any company.
LINES |= st.lists(st.sampled_from([*"a1.,-&;'\n\t \xa0", "  ", "&amp;", "quot;", "<skipped>"])).map("".join)


@given(
    pairs=st.lists(st.tuples(LINES, LINES), min_size=1, max_size=6),
    tokenize=st.sampled_from(["13a", "none", "char", "intl", "zh"]),
    lowercase=st.booleans(),
    together=st.integers(1, 4),
)
def test_scores_of_any_text_are_sacrebleus_bit_for_bit(pairs, tokenize, lowercase, together):
    hypotheses, references = ([*side] for side in zip(*pairs, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "LINES", together)
        scores = score(hypotheses, references, tokenize, lowercase)
    bleu = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
    six, two = (sacrebleu.CHRF(char_order=order, lowercase=lowercase) for order in (6, 2))
    expected = [metric.corpus_score(hypotheses, [references]).score for metric in (bleu, six, two)]
    assert [scores.bleu, scores.chrf, scores.chrf_bigram] == expected


def test_ngrams_of_so_many_characters_that_six_do_not_fit_into_64_bits():
    wide = "".join(chr(0x10000 + i) for i in range(2**16 - 7))
    hypotheses, references = [wide, "xabcde"], [wide, "yabcde"]  # 2 ** 16 characters in all
    expected = sacrebleu.CHRF().corpus_score(hypotheses, [references]).score
    assert score(hypotheses, references, "none").chrf == expected


def test_the_defaults_are_sacrebleus_own():
    scores = score(HYPOTHESES, REFERENCES)
    assert scores.bleu == sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert scores.chrf == sacrebleu.corpus_chrf(HYPOTHESES, [REFERENCES]).score


def test_tokenisation_and_case_matter_here():
    """Guards the tests above: each setting gives another BLEU on these lines."""
    settings = [("13a", False), ("13a", True), ("none", False), ("none", True), ("char", False)]
    assert len({score(HYPOTHESES, REFERENCES, t, lc).bleu for t, lc in settings}) == len(settings)


def test_bleu_and_chrf_worked_by_hand():
    # a b c d | e against a b c d | f: n-gram precisions 4/5, 3/4, 2/3, 1/2, whose product is 1/5.
    scores = score(["a b c d e"], ["a b c d f"], tokenize="none")
    assert scores.bleu == pytest.approx(100 * 0.2**0.25)
    # chrF counts the letters without spaces: order 1: 4/5, order 2: 3/4; precision equals recall.
    assert scores.chrf_bigram == pytest.approx(100 * (4 / 5 + 3 / 4) / 2)
    # orders 1 to 5 exist: 4/5, 3/4, 2/3, 1/2, 0
    assert scores.chrf == pytest.approx(100 * (4 / 5 + 3 / 4 + 2 / 3 + 1 / 2 + 0) / 5)


def test_chrf_weighs_recall_four_times_precision():
    # "ab" against "abcd", order 2: precision 1, recall (2/4 + 1/3) / 2; F2 = 5 P R / (4 P + R)
    recall = (2 / 4 + 1 / 3) / 2
    assert score(["ab"], ["abcd"]).chrf_bigram == pytest.approx(100 * 5 * recall / (4 + recall))


def test_exact_match_is_a_share_of_lines():
    assert score(["a", "b", "C", "d"], ["a", "x", "c", "d"]).exact == 0.5
    assert score(["a", "b", "C", "d"], ["a", "x", "c", "d"], lowercase=True).exact == 0.75
    assert score(["a "], ["a"]).exact == 0.0


def test_perfect_and_hopeless():
    perfect = score(REFERENCES, REFERENCES)
    assert (perfect.bleu, perfect.chrf, perfect.chrf_bigram, perfect.exact) == (
        pytest.approx(100), pytest.approx(100), pytest.approx(100), 1.0,
    )  # fmt: skip
    hopeless = score(["", ""], ["a b c d", "e f g h"])
    assert (hopeless.bleu, hopeless.chrf, hopeless.chrf_bigram, hopeless.exact) == (0, 0, 0, 0)


def test_signatures_name_the_settings():
    version = sacrebleu.__version__
    assert score(HYPOTHESES, REFERENCES, tokenize="none", lowercase=True).signatures == {
        "bleu": f"BLEU|nrefs:1|case:lc|eff:no|tok:none|smooth:exp|version:{version}",
        "chrf": f"chrF2|nrefs:1|case:lc|eff:yes|nc:6|nw:0|space:no|version:{version}",
        "chrf_bigram": f"chrF2|nrefs:1|case:lc|eff:yes|nc:2|nw:0|space:no|version:{version}",
    }
    assert "case:mixed|eff:no|tok:13a" in score(HYPOTHESES, REFERENCES).signatures["bleu"]


def test_tokenised_text_is_accepted_in_silence_only_where_it_is_declared(caplog):
    lines = ["it is so ."] * 150
    scores._warn_of_tokenised_text.cache_clear()  # as at first
    with caplog.at_level(logging.WARNING):
        score(lines, lines, tokenize="none")
        assert not caplog.records
        score(lines[:99], lines[:99], tokenize="13a")
        assert not caplog.records, "few lines may end so by chance"
        score(lines, lines, tokenize="13a")
        score(lines, lines, tokenize="13a")
        [record] = caplog.records
        assert record.getMessage().endswith("if yours is tokenised, --set testing.bleu_tokenize=none")


def test_a_bleu_of_0_where_characters_agree_is_warned_of():
    hypotheses, references = ["我喜欢吃苹果。", "今天天气好"], ["我喜欢吃梨。", "今天天气很好"]
    for translations, tokenize, warned in (
        (hypotheses, "zh", False),
        (["x", "y"], "13a", False),
        (hypotheses, "13a", True),
    ):
        result = score(translations, references, tokenize)
        assert bool(scores.wordless(result.bleu, result.chrf)) == warned


@pytest.mark.parametrize(
    ("hypotheses", "references", "tokenize", "wrong"),
    [
        (["a"], ["a", "b"], "13a", "2 references"),
        ([], [], "13a", ""),
        (["a"], ["a"], "13b", "'13b'"),
    ],
)
def test_bad_input_is_named(hypotheses, references, tokenize, wrong):
    with refuses(InputError, "", wrong):
        score(hypotheses, references, tokenize=tokenize)
    with refuses(InputError, "", wrong):
        paired_bootstrap({"x": hypotheses}, references, tokenize=tokenize)


def test_a_tokenizer_that_lacks_its_package_is_bad_input(monkeypatch):
    def lacking(**_):
        raise RuntimeError("\nplease install\n    something\n")

    lacking.TOKENIZERS = ["ja-mecab"]
    monkeypatch.setattr("caesura.evaluation.scores.BLEU", lacking)
    with refuses(InputError, "", "'ja-mecab'", "please install something"):
        score(["a"], ["a"], tokenize="ja-mecab")


def test_bootstrap_scores_are_the_scores():
    rows = paired_bootstrap({"ours": HYPOTHESES, "worse": WORSE}, REFERENCES, "none", True, samples=20)
    assert list(rows) == ["ours", "worse"]
    for name, hypotheses in (("ours", HYPOTHESES), ("worse", WORSE)):
        alone = score(hypotheses, REFERENCES, "none", True)
        assert (rows[name].bleu.score, rows[name].chrf.score) == (alone.bleu, alone.chrf)
    assert rows["ours"].bleu.p_value is None
    assert (
        rows["worse"].signatures["bleu"].startswith("BLEU|nrefs:1|bs:20|seed:12345|case:lc|eff:no|tok:none")
    )
    assert rows["worse"].signatures["chrf"].startswith("chrF2|nrefs:1|bs:20|seed:12345|case:lc")


def test_bootstrap_is_sacrebleus(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    metrics = {"b": sacrebleu.BLEU(), "c": sacrebleu.CHRF()}
    systems = {"ours": HYPOTHESES, "worse": WORSE}
    _, theirs = sacrebleu.significance.PairedTest(
        list(systems.items()), metrics, [REFERENCES], test_type="bs", n_samples=50
    )()
    monkeypatch.setenv("SACREBLEU_SEED", "8")  # ours takes its own argument instead
    ours = paired_bootstrap(systems, REFERENCES, samples=50, seed=7)
    for i, name in enumerate(systems):
        for mine, column in ((ours[name].bleu, theirs["BLEU"]), (ours[name].chrf, theirs["chrF2"])):
            result = column[i]
            assert (mine.score, mine.mean, mine.interval, mine.p_value) == (
                result.score, result.mean, result.ci, result.p_value,
            )  # fmt: skip


def test_bootstrap_tells_better_from_equal():
    references = [f"line {i} of the text that is here" for i in range(60)]
    wrong = ["line of something else altogether now"] * 60
    rows = paired_bootstrap(
        {"right": references, "copy": list(references), "wrong": wrong}, references, samples=99
    )
    assert (rows["copy"].bleu.p_value, rows["copy"].chrf.p_value) == (1.0, 1.0)
    assert rows["wrong"].bleu.p_value == rows["wrong"].chrf.p_value == pytest.approx(1 / 100)
    assert (rows["right"].bleu.mean, rows["right"].bleu.interval) == (pytest.approx(100), pytest.approx(0))
    assert rows["wrong"].chrf.interval > 0


def test_the_seed_counts_and_repeats():
    def mean(seed):
        return paired_bootstrap({"x": HYPOTHESES}, REFERENCES, samples=30, seed=seed)["x"].bleu.mean

    assert mean(1) == mean(1) != mean(2)


@pytest.mark.parametrize("before", [None, "99"])
def test_the_seed_does_not_stay_in_the_environment(monkeypatch, before):
    if before is None:
        monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    else:
        monkeypatch.setenv("SACREBLEU_SEED", before)
    paired_bootstrap({"x": HYPOTHESES, "y": WORSE}, REFERENCES, samples=5, seed=3)
    assert os.environ.get("SACREBLEU_SEED") == before

    def fails(*_, **__):
        assert os.environ["SACREBLEU_SEED"] == "3"
        raise KeyboardInterrupt

    monkeypatch.setattr("caesura.evaluation.scores.PairedTest", fails)
    with pytest.raises(KeyboardInterrupt):
        paired_bootstrap({"x": HYPOTHESES}, REFERENCES, seed=3)
    assert os.environ.get("SACREBLEU_SEED") == before


def test_bad_bootstraps_are_named():
    with refuses(InputError):
        paired_bootstrap({}, REFERENCES)
    with refuses(InputError, "system 'y': "):
        paired_bootstrap({"x": HYPOTHESES, "y": ["a"]}, REFERENCES)
    with refuses(InputError, "0 "):
        paired_bootstrap({"x": HYPOTHESES}, REFERENCES, samples=0)
    with refuses(InputError, "bootstrap seed 0"):
        paired_bootstrap({"x": HYPOTHESES}, REFERENCES, seed=0)
