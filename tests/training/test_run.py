"""What a run measures before it starts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caesura.training.run import output_ratio


@given(st.integers(0, 300), st.integers(0, 900), st.integers(1, 60))
def test_the_target_of_a_single_pair_fits_into_the_measured_limit(
    source: int, target: int, extra: int
) -> None:
    ratio = output_ratio(np.array([[source, target]]), extra)
    assert ratio >= 1
    assert ratio * (source + 1) + extra >= target + 1 - 0.005 * (source + 1)  # the ratio is rounded to 0.01


def test_the_ratio_is_the_least_that_holds_all_but_a_thousandth() -> None:
    lengths = np.array([[9, 9]] * 5000 + [[9, 129]] * 10 + [[9, 899]] * 2)
    assert output_ratio(lengths, extra=50) == pytest.approx((130 - 50) / 10)
    assert output_ratio(lengths[:5000], extra=50) == 1
