"""The file of messages: what is not in it fails, and nothing is in it that no test produces."""

import pytest
import wording


def test_a_message_that_is_not_in_the_file_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wording, "REWRITE", False)
    with pytest.raises(AssertionError, match="REWRITE_MESSAGES=1"):
        wording.wording("in other words")


def test_every_test_of_the_file_is_there_and_in_order() -> None:
    lines = wording.FILE.read_text(encoding="utf-8").splitlines()
    tests = [line for line in lines if not line.startswith("    ")]
    assert [test for test in tests if not wording.exists(test)] == []
    assert tests == sorted({*tests})
