"""The server: the page, its files, and the API behind it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from caesura.config.phrasing import problems
from caesura.errors import InputError, out_of_memory
from caesura.explorer import describe, schema
from caesura.explorer.answers import Answers
from caesura.explorer.guard import LOOPBACK, App, Guard
from caesura.explorer.limits import Limits
from caesura.explorer.openapi import document
from caesura.explorer.pool import Pool, Stopped
from caesura.explorer.refused import Refused
from caesura.explorer.shelf import Shelf
from caesura.search.rounds import Check
from caesura.visible import each_line, shortened

STATIC = Path(__file__).with_name("static")
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "ico": "image/x-icon",
    "woff2": "font/woff2",
}
QUICK = 250  # characters times hypotheses that a quick thread still searches for
LONG = 2  # threads for more, and for flips
USUAL = 5  # hypotheses where a request names none

Work = Callable[[Any, Check], BaseModel]


@dataclass(frozen=True)
class Question:
    """One path of the API: what it takes, what answers it, and whether that may take long."""

    path: str
    request: type[BaseModel]
    answer: type[BaseModel]
    about: str
    work: Work
    long: Callable[[Any], bool] = lambda _: False


class Explorer:
    """Models on a shelf, threads that ask them, and the application that serves both."""

    def __init__(
        self,
        shelf: Shelf,
        threads: int = 2,
        limits: Limits | None = None,
        hosts: Collection[str] = LOOPBACK,
        token: str | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.shelf, self.answers = shelf, Answers(shelf, self.limits)
        self.quick = Pool("quick", threads, self.limits.waiting, self.limits.seconds)
        self.slow = Pool("slow", LONG, self.limits.waiting_long, self.limits.seconds_long)
        routes = [
            Route("/", _file("index.html")),
            Route("/docs", _file("docs.html")),
            Route("/static/{name}", _named_file),
            Route("/openapi.json", _constant(json.dumps(document(self.questions)))),
            Route("/api/models", self._models),
        ]
        routes += [Route(q.path, self._asked(q), methods=["POST"]) for q in self.questions]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _http_problem})
        self.app = Guard(app, _refusal, hosts, token, self.limits)

    @property
    def questions(self) -> list[Question]:
        """What can be posted."""
        answers = self.answers
        return [
            Question(
                "/segment",
                schema.SegmentRequest,
                schema.SegmentAnswer,
                "Where a model cuts a sentence, and the score of each gap.",
                answers.segment,
            ),
            Question(
                "/explain",
                schema.ExplainRequest,
                schema.ExplainAnswer,
                "Cuts, translation, attention and halting of a sentence, in one pass.",
                answers.explain,
                long=lambda request: _is_long([request.text], request.beam),
            ),
            Question(
                "/translate",
                schema.TranslateRequest,
                schema.TranslateAnswer,
                "Translations of several sentences, each with its log-probability.",
                answers.translate,
                long=lambda request: _is_long(request.texts, request.beam),
            ),
            Question(
                "/flips",
                schema.FlipsRequest,
                schema.FlipsAnswer,
                "What cutting or joining each gap, one at a time, does to the loss of a translation.",
                answers.flips,
                long=lambda _: True,
            ),
            Question(
                "/training",
                schema.TrainingRequest,
                schema.TrainingAnswer,
                "The curves of a training, finished or running, and the version of its newest weights.",
                lambda request, _: describe.training(self.shelf.slot(request.model)),
            ),
        ]

    def stop(self) -> None:
        """Answer nothing more; what is running ends at its next check."""
        self.quick.stop()
        self.slow.stop()

    def join(self, seconds: float) -> None:
        """Wait for the threads, at most about this long."""
        self.quick.join(seconds)
        self.slow.join(seconds)

    async def _models(self, request: Request) -> Response:
        return await _answered(request, self.quick.run(lambda _: self.answers.models()))

    def _asked(self, question: Question) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                content = _parsed(question.request, await _body(request, self.limits))
            except Refused as problem:
                return error_response(problem)
            pool = self.slow if question.long(content) else self.quick
            owner = request.client.host if request.client else ""
            return await _answered(request, pool.run(lambda check: question.work(content, check), owner))

        return endpoint


def _is_long(texts: Sequence[str], beam: int | None) -> bool:
    """Whether a search may take seconds."""
    return sum(map(len, texts)) * (USUAL if beam is None else beam) > QUICK


async def _answered(request: Request, work: Awaitable[BaseModel]) -> Response:
    """The result as JSON, or what went wrong; dropped if the client goes away first."""
    answer = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            return Response(status_code=499)  # nobody reads it
        return Response(answer.result().model_dump_json(), media_type="application/json")
    except Refused as problem:
        return error_response(problem)
    except InputError as problem:
        return error_response(Refused(422, str(problem)))
    except Stopped:
        return error_response(Refused(503, "the server is shutting down"))
    except Exception as problem:
        if out_of_memory(problem):
            return error_response(Refused(503, "there is not enough memory for this; try a shorter text"))
        print(each_line("".join(traceback.format_exception(problem))), end="", file=sys.stderr)
        return error_response(Refused(500, f"{type(problem).__name__}; the server's terminal shows where"))
    finally:
        answer.cancel()
        gone.cancel()


async def _disconnected(request: Request) -> None:
    """Return when the client has gone; its body has been read, so nothing else can come."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request, limits: Limits) -> bytes:
    """The body, as long and as slow as the limits allow."""
    most = f"a request has at most {limits.body:,} bytes"
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.body:
        raise Refused(413, most)
    content = bytearray()
    try:
        async with asyncio.timeout(limits.reading):
            async for part in request.stream():
                content += part
                if len(content) > limits.body:
                    raise Refused(413, most)
    except TimeoutError:
        raise Refused(408, "the request took too long to arrive") from None
    except ClientDisconnect:
        raise Refused(400, "the request ended before its body was complete") from None
    return bytes(content)


def _parsed(kind: type[BaseModel], content: bytes) -> Any:
    """The request that a body describes; Refused with the key that is wrong."""
    try:
        return kind.model_validate_json(content)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise Refused(400, "the body is not JSON, or contains half a character") from None
        problem = problems(invalid, kind, {})[0]
        key = shortened(".".join(problem.key))
        text = f"{key}: {problem.message}" if key else "the body should be a JSON object"
        raise Refused(422, text, key or None) from None


def error_response(problem: Refused) -> Response:
    """A refusal as an answer in JSON."""
    answer = schema.ErrorAnswer(error=schema.Problem(message=str(problem), field=problem.field))
    headers = {429: {"retry-after": "1"}, 503: {"retry-after": "1"}, 401: {"www-authenticate": "Bearer"}}
    return Response(
        answer.model_dump_json(),
        status_code=problem.status,
        headers=headers.get(problem.status),
        media_type="application/json",
    )


def _refusal(problem: Refused) -> App:
    return error_response(problem)


async def _http_problem(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    sentences = {404: "there is nothing at this address", 405: "this address takes another method"}
    text = sentences.get(problem.status_code, str(problem.detail))
    return error_response(Refused(problem.status_code, text))


def _constant(text: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return Response(text, media_type="application/json")

    return endpoint


def _file(name: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return read_static(name)

    return endpoint


async def _named_file(request: Request) -> Response:
    return read_static(request.path_params["name"])


def read_static(name: str) -> Response:
    """A file of the page; any other name leads nowhere."""
    kind = TYPES.get(name.rpartition(".")[2])
    if kind is None or not re.fullmatch(r"[a-z][a-z0-9_-]*(\.[a-z0-9]+)+", name):
        raise HTTPException(404)
    try:
        return Response((STATIC / name).read_bytes(), media_type=kind)
    except OSError:
        raise HTTPException(404) from None
