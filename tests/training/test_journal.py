"""validations.tsv keeps the header that it has, whoever began it; and what is read from it."""

import csv
from pathlib import Path

from caesura.training.journal import VALIDATIONS, Journal, read_records, training_seconds


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / VALIDATIONS).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_a_run_begun_by_an_earlier_version_goes_on_under_its_header(tmp_path: Path) -> None:
    old = "update\tbleu\tgradient_share\toutput_gradient_share\tverdict\n1\t2.5\t0.5\t\tbest\n"
    (tmp_path / VALIDATIONS).write_text(old, encoding="utf-8")
    journal = Journal(tmp_path, {VALIDATIONS: len(old)})
    record = {"update": 2, "bleu": 3.0, "spill": 0.1, "live": 0.25, "output_live": None, "verdict": "wait"}
    journal.validation(record)
    journal.close()
    assert (tmp_path / VALIDATIONS).read_text(encoding="utf-8") == old + "2\t3\t0.25\t\twait\n"


def test_a_header_is_that_of_the_first_row_also_when_the_run_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.validation({"update": 1, "live": 0.5})
    journal.validation({"live": 0.75, "update": 2})
    sizes = journal.sizes()
    journal.validation({"update": 3, "live": 0.0})  # lost with the process
    journal.close()
    journal = Journal(tmp_path, sizes)
    journal.validation({"penalty": 9.0, "live": 1.0, "update": 3})
    journal.close()
    assert [row["live"] for row in rows(tmp_path)] == ["0.5", "0.75", "1"]
    assert [row["update"] for row in rows(tmp_path)] == ["1", "2", "3"]


def test_a_file_that_was_cut_to_nothing_gets_a_new_header(tmp_path: Path) -> None:
    (tmp_path / VALIDATIONS).write_text("update\tgradient_share\n1\t0.5\n", encoding="utf-8")
    journal = Journal(tmp_path, {})
    journal.validation({"update": 1, "live": 0.5})
    journal.close()
    assert (tmp_path / VALIDATIONS).read_text(encoding="utf-8") == "update\tlive\n1\t0.5\n"


def test_a_log_of_an_earlier_version_is_read_under_the_names_of_today(tmp_path: Path) -> None:
    lines = [
        '{"kind": "start", "gradient_share": 0.5, "output_gradient_share": 0.25}',
        '{"kind": "train", "inside": 0.75, "output_inside": 1.0, "loss": 2.0}',
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert read_records(tmp_path) == [
        {"kind": "start", "live": 0.5, "output_live": 0.25},
        {"kind": "train", "live": 0.75, "output_live": 1.0, "loss": 2.0},
    ]


def test_training_ends_for_us_at_the_last_best(tmp_path: Path) -> None:
    assert training_seconds(tmp_path) is None
    rows = ["update\tseconds\tverdict", "1\t2.5\tbest", "2\t5\tbest", "3\t7.5\twait"]
    (tmp_path / "validations.tsv").write_text("\n".join(rows) + "\n")
    assert training_seconds(tmp_path) == 5.0
