"""Asking the explorer's server in this process."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from caesura.explorer.limits import Limits
from caesura.explorer.server import Explorer
from caesura.explorer.shelf import Shelf

HOST = "http://127.0.0.1:8765"
OWN = "tatoeba-de-en"
SENTENCE = "Ich habe meinen Regenschirm im Zug vergessen."


def client(explorer: Explorer, **headers: str) -> TestClient:
    """A client whose server errors are answers."""
    return TestClient(explorer.app, base_url=HOST, headers=headers, raise_server_exceptions=False)


@contextmanager
def serving(*folders: Path | str, **options: Any) -> Iterator[Explorer]:
    """An explorer of model folders, whose threads end with it; `limits` as keywords of Limits."""
    limits = Limits(**options.pop("limits", {}))
    explorer = Explorer(Shelf([Path(folder) for folder in folders]), limits=limits, **options)
    try:
        yield explorer
    finally:
        explorer.stop()
        explorer.join(20)


def ask(explorer: Explorer, path: str, status: int = 200, **body: Any) -> Any:
    """What the server answers to a JSON body; an error's sentence is checked for its form."""
    response = client(explorer).post(path, json=body)
    assert response.status_code == status, response.text
    return response.json() if status == 200 else problem(response)


def answer(explorer: Explorer, path: str, **body: Any) -> Any:
    """What the server would send, without a server: faster, for tests that ask often."""
    [question] = [question for question in explorer.questions if question.path == path]
    request = question.request.model_validate_json(json.dumps(body))
    return json.loads(question.work(request, lambda: None).model_dump_json())


def problem(response: Any) -> dict[str, Any]:
    """The error of an answer, which is one sentence on one line."""
    content = json.loads(response.content)
    assert content.keys() == {"error"}
    assert content["error"].keys() == {"message", "field"}
    message = content["error"]["message"]
    assert message
    assert message.isprintable()
    assert "Traceback" not in message
    return content["error"]
