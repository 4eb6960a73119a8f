"""Sentences to show, and what stands out in them."""

from analysis.cuts import cut

from caesura.analysis.lines import Line
from caesura.analysis.sentences import reading
from caesura.data.words import WordCounts
from caesura.output import Output
from caesura.search.hypothesis import Hypothesis


def test_a_copied_word_is_not_called_invented() -> None:
    words = WordCounts({"the": 3}, 3, True)
    output = Output(cut("in| |Ulm"), [Hypothesis((), 0.0, 0.0)], ["the Ulm, altients"])
    assert reading(Line(1, "in Ulm"), output, words).invented == ["altients"]
