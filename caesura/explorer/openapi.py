"""/openapi.json: the API in the usual form, made from the models that check it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from caesura import __version__
from caesura.explorer import schema

if TYPE_CHECKING:
    from caesura.explorer.server import Question

REFS = "#/components/schemas/{model}"
PROBLEMS = {
    "400": "the body is not JSON",
    "401": "the token is missing",
    "403": "the request names another host or comes from another site",
    "404": "there is no model of this name",
    "408": "the body took too long to arrive",
    "410": "the model's folder was deleted",
    "413": "the body or a text is too long",
    "415": "the body is not declared as JSON",
    "422": "a key or value is wrong",
    "429": "too many requests per second",
    "500": "an error in the server",
    "503": "too many requests are waiting, this one took too long, or there are no weights yet",
}


def document(questions: Sequence[Question]) -> dict[str, Any]:
    """The document of all paths."""
    models: list[type[BaseModel]] = [schema.ModelsAnswer, schema.ErrorAnswer]
    models += [model for question in questions for model in (question.request, question.answer)]
    inputs = {question.request for question in questions}
    modes = [(model, "validation" if model in inputs else "serialization") for model in models]
    names, definitions = models_json_schema(modes, ref_template=REFS)  # type: ignore[arg-type]
    reference = {model: names[model, mode] for model, mode in modes}  # type: ignore[index]
    paths: dict[str, Any] = {
        "/api/models": {
            "get": _operation("The models, and what you can ask of them.", schema.ModelsAnswer, reference)
        }
    }
    for question in questions:
        operation = _operation(question.about, question.answer, reference)
        body = {"application/json": {"schema": reference[question.request]}}
        paths[question.path] = {"post": {**operation, "requestBody": {"required": True, "content": body}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "caesura explore",
            "version": __version__,
            "description": (schema.__doc__ or "").strip(),
        },
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }


def _operation(about: str, answer: type[BaseModel], reference: dict[type[BaseModel], Any]) -> dict[str, Any]:
    problem = {"application/json": {"schema": reference[schema.ErrorAnswer]}}
    return {
        "summary": about,
        "responses": {
            "200": {
                "description": (answer.__doc__ or "").strip(),
                "content": {"application/json": {"schema": reference[answer]}},
            },
            **{status: {"description": what, "content": problem} for status, what in PROBLEMS.items()},
        },
    }
