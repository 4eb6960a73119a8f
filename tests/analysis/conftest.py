"""A report of two models with real pictures, drawn once."""

from pathlib import Path
from unittest import mock

import pytest
from analysis.subjects import LINES, SMALL, subject
from helpers import ACT, LOOKUP

from caesura.analysis.drawings import Figures
from caesura.analysis.findings import Analysis
from caesura.analysis.report import Report
from caesura.analysis.study import analyse


@pytest.fixture(scope="session")
def analyses() -> list[Analysis]:
    return [analyse(subject(s, n), LINES, "text", None, SMALL) for s, n in ((LOOKUP, "char"), (ACT, "act"))]


@pytest.fixture(scope="session")
def shown(analyses: list[Analysis]) -> tuple[str, Figures]:
    """The report's page and its figures."""
    return Report(analyses).page()


@pytest.fixture(scope="session")
def written(
    analyses: list[Analysis], shown: tuple[str, Figures], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of the report; not to be written to."""
    with mock.patch.object(Report, "page", return_value=shown):
        return Report(analyses).write(tmp_path_factory.mktemp("report")).parent
