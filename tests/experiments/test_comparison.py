"""Which model the others are compared with."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wording import refuses

from caesura.errors import InputError
from caesura.experiments.comparison import find_baseline, first_success


@pytest.mark.parametrize(
    ("bleu", "place"),
    [([20.0, 25.0], 0), ([0.5, 25.0, 24.0], 1), ([0.0, 2.4, 2.5, 25.0], 2), ([0.0, 0.0], 0), ([0.0], 0)],
)
def test_the_first_that_is_not_a_failure(bleu: list[float], place: int) -> None:
    assert first_success(bleu) == place


@given(st.lists(st.floats(0, 100), min_size=1))
def test_it_has_at_least_a_tenth_of_the_best_and_none_before_it_has(bleu: list[float]) -> None:
    place = first_success(bleu)
    assert bleu[place] >= 0.1 * max(bleu)
    assert all(score < 0.1 * max(bleu) for score in bleu[:place])


FOLDERS = [Path("runs/char"), Path("runs/act")]


def test_a_baseline_is_found_by_its_name_or_folder() -> None:
    for baseline in ("act", "runs/act", "./runs/act/", str(Path("runs/act").resolve())):
        assert find_baseline(baseline, FOLDERS, ()) == 1
    assert find_baseline("Zeichen", FOLDERS, ("Zeichen", "ACT")) == 0
    for baseline, names, systems in (("acts", (), "char, act"), ("char", ("Z", "ACT"), "Z, ACT")):
        with refuses(InputError, f"--baseline {baseline}", systems):
            find_baseline(baseline, FOLDERS, names)
