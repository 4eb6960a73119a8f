"""What runs leave, for comparing them."""

import json
from pathlib import Path
from typing import Any

from caesura.training.checkpoint import list_checkpoints, read_progress


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != "seconds"}


def outcome(folder: Path) -> dict[str, Any]:
    """All that a run leaves that has to be the same in an equal run: everything but times."""
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    header, *rows = [line.split("\t") for line in (folder / "validations.tsv").read_text().splitlines()]
    checkpoint = list_checkpoints(folder / "checkpoints")[-1]
    progress = without_times(vars(read_progress(checkpoint)))
    del progress["journal"]  # sizes in bytes, of times too
    content = checkpoint.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")  # the tensors follow the header, which has times
    return {
        "metrics": [without_times(record) for record in metrics],
        "validations": [without_times(dict(zip(header, row, strict=True))) for row in rows],
        "progress": progress,
        "state": content[start:],
        "best": (folder / "model.safetensors").read_bytes(),
    }
