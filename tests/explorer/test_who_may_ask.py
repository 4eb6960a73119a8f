"""Requests from elsewhere, too many, too large or malformed are refused; text comes back as text."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from explorer.asking import OWN, SENTENCE, client, problem, serving
from wording import wording

from caesura.explorer.guard import HEADERS, Rates, hostname
from caesura.explorer.refused import Refused
from caesura.explorer.serve import Address
from caesura.explorer.server import STATIC, Explorer

BODY = {"model": "cif", "text": "abcd"}
NASTY = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\x1b]0;title\x07\x1b[31mred",
    "a\u202eb\u2066c\u200f",
    '"; DROP TABLE cuts; --\\',
    "a\x00b\x7f\n\r\u2028",
]


@pytest.fixture(scope="module")
def open_to_all(folders: dict[str, Any]) -> Iterator[Explorer]:
    """As with --host 0.0.0.0: names of this machine, addresses, and a token."""
    names = Address("0.0.0.0", 0).names()
    with serving(folders["cif"], hosts=names, token="secret") as explorer:
        yield explorer


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8765", "LOCALHOST"])
def test_names_of_this_machine_are_answered(explorer: Explorer, host: str) -> None:
    response = client(explorer, host=host, origin=f"http://{host}").post("/segment", json=BODY)
    assert response.status_code == 200


FOREIGN = [
    ({"host": "evil.example"}, 403),
    ({"host": "evil.example:8765"}, 403),
    ({"host": "127.0.0.1.evil.example"}, 403),
    ({"host": "localhost.evil.example:80"}, 403),
    ({"host": "localhost@evil.example"}, 403),
    ({"host": "[::1"}, 403),
    ({"host": "192.168.1.7"}, 403),
    ({"host": ""}, 403),
    ({"origin": "http://evil.example"}, 403),
    ({"origin": "null"}, 403),
    ({"origin": "http://127.0.0.1:9999"}, 403),
    ({"origin": "file://"}, 403),
    ({"sec-fetch-site": "cross-site"}, 403),
    ({"sec-fetch-site": "same-site"}, 403),
    ({"content-type": "text/plain"}, 415),
    ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ({"content-type": "text/plain; application/json"}, 415),
]


@pytest.mark.parametrize(("headers", "status"), FOREIGN)
def test_requests_of_other_sites_are_refused(
    explorer: Explorer, headers: dict[str, str], status: int
) -> None:
    sent = {"content-type": "application/json", **headers}
    response = client(explorer, **sent).post("/segment", content=json.dumps(BODY))
    assert response.status_code == status
    wording(problem(response)["message"])
    if status == 403 and "sec-fetch-site" not in headers:
        assert client(explorer, **headers).get("/").status_code == 403


def test_another_site_may_link_to_the_page_but_not_read_the_models(explorer: Explorer) -> None:
    elsewhere = client(explorer, **{"sec-fetch-site": "cross-site"})
    assert elsewhere.get("/").status_code == 200
    assert elsewhere.get("/api/models").status_code == 403


def test_every_answer_has_the_headers(explorer: Explorer) -> None:
    asked = client(explorer)
    answers = [asked.get(path) for path in ("/", "/api/models", "/none", "/static/none.js", "/openapi.json")]
    answers += [asked.post("/segment", json=BODY), asked.post("/segment"), asked.put("/segment")]
    answers += [client(explorer, host="evil.example").get("/")]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
        assert not answer.cookies


def test_the_page_is_there_and_nothing_beside_it(explorer: Explorer) -> None:
    asked = client(explorer)
    for path in STATIC.iterdir():
        answer = asked.get(f"/static/{path.name}")
        assert answer.status_code == 200, path
        assert answer.content == path.read_bytes()
    names = (
        "../server.py",
        "..%2fserver.py",
        "%2e%2e/server.py",
        "server.py",
        ".hidden.js",
        "a/b.js",
        "a%00.js",
    )
    for name in names:
        answer = asked.get(f"/static/{name}")
        assert answer.status_code == 404
        wording(problem(answer)["message"])


@pytest.mark.parametrize("text", NASTY)
def test_text_comes_back_as_it_was(explorer: Explorer, text: str) -> None:
    response = client(explorer).post("/explain", json={"model": "cif", "text": text, "beam": 1})
    assert response.headers["content-type"] == "application/json"
    assert "".join(response.json()["segmentation"]["pieces"]) == text
    assert not any(ord(c) < 32 for c in response.text)  # controls are escaped on the way
    refused = client(explorer).post("/explain", json={"model": text, "text": "a"})
    message = problem(refused)["message"]
    assert "<script" not in message
    for field in ({text: 1}, {"rule": {"name": text}}, {"beam": text}):
        problem(client(explorer).post("/explain", json={**BODY, **field}))


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 422),
        (b"null", 422),
        (b'"text"', 422),
        (b"[" * 50_000, 400),
        (b'{"text": ' * 7_000, 400),
        (b"\xff\xfe", 400),
        (b'{"model": "cif", "text": "' + b"x" * 70_000 + b'"}', 413),
        (b'{"model": "cif", "text": "a", "rate": ' + b"9" * 5_000 + b"}", 400),
    ],
)
def test_odd_bodies_are_refused(explorer: Explorer, content: bytes, status: int) -> None:
    response = client(explorer).post(
        "/segment", content=content, headers={"content-type": "application/json"}
    )
    assert response.status_code == status
    wording(problem(response)["message"])


def test_a_body_without_a_length_is_bounded_too(explorer: Explorer) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1_000

    response = client(explorer).post(
        "/segment", content=parts(), headers={"content-type": "application/json"}
    )
    assert response.status_code == 413


def test_beyond_this_machine_a_token_is_wanted(open_to_all: Explorer) -> None:
    for host in ("127.0.0.1", "192.168.1.7:8765", "[fe80::1]:80"):
        right = {"host": host, "authorization": "Bearer secret"}
        assert client(open_to_all, **right).post("/segment", json=BODY).status_code == 200
        assert client(open_to_all, **right).get("/api/models").status_code == 200
        for wrong in ({}, {"authorization": "Bearer"}, {"authorization": "Bearer secret2"}):
            answer = client(open_to_all, host=host, **wrong).post("/segment", json=BODY)
            assert answer.status_code == 401
            wording(problem(answer)["message"])
            assert client(open_to_all, host=host, **wrong).get("/api/models").status_code == 401
            assert client(open_to_all, host=host, **wrong).get("/").status_code == 200
    evil = {"host": "evil.example", "authorization": "Bearer secret"}
    assert client(open_to_all, **evil).get("/").status_code == 403


def test_too_many_requests_of_one_address_are_refused(folders: dict[str, Any]) -> None:
    with serving(folders["cif"], limits={"burst": 3, "per_second": 0.001}) as explorer:
        asked = client(explorer)
        answers = [asked.post("/segment", json=BODY) for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 3 + [429] * 2
        assert answers[-1].headers["retry-after"] == "1"
        wording(problem(answers[-1])["message"])
        for path in ("/", "/docs", "/static/app.js", "/static/none.js"):
            assert asked.get(path).status_code in (200, 404)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/models"), ("GET", "/openapi.json"), ("GET", "/none"), ("PUT", "/"), ("PUT", "/segment")],
)
def test_every_path_but_the_files_has_a_rate(folders: dict[str, Any], method: str, path: str) -> None:
    with serving(folders["cif"], limits={"burst": 2, "per_second": 0.001}) as explorer:
        asked = client(explorer)
        answers = [asked.request(method, path).status_code for _ in range(4)]
        assert 429 not in answers[:2]
        assert answers[2:] == [429, 429]


def test_a_rate_recovers_with_time_and_is_of_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    rates = Rates(2.0, 2)
    for address in ("a", "b"):
        rates.take(address)
        rates.take(address)
    with pytest.raises(Refused):
        rates.take("a")
    now = 0.5
    rates.take("a")
    with pytest.raises(Refused):
        rates.take("a")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("a:1", "a"),
        ("A", "a"),
        ("[::1]", "::1"),
        ("[::1]:5", "::1"),
        ("a:", "a"),
        ("a:b", None),
        ("a:1:2", None),
        ("[::1]x", None),
        ("[", None),
        ("", None),
        (":5", None),
    ],
)
def test_a_host_is_taken_apart(host: str, name: str | None) -> None:
    assert hostname(host) == name


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
    ],
)
def test_an_address_is_local_or_not(host: str, local: bool) -> None:
    assert Address(host, 0).local == local


def test_what_the_model_brings_is_never_markup(explorer: Explorer) -> None:
    answer = client(explorer).post("/explain", json={"model": OWN, "text": SENTENCE})
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/json"
