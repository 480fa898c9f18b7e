"""Routes: handlers in one module per resource, the table of them, and the OpenAPI document generated from it.

A handler receives an `HttpCall` and the decoded input, and returns a reply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from starlette.responses import Response

from .....protocol.version import VERSION
from ...access.scopes import OPEN, Rule
from ..call import SSE, ErrorBody, HttpCall, HttpRoute, reply, route
from . import about, agui, completions, openai, roles, runs, sessions

Json = Any

MODULES = (about, roles, runs, completions, sessions, openai, agui)


@route("GET", "/openapi.json", OPEN, tag="about", gives=dict)
async def document(_: HttpCall) -> Response:
    """The OpenAPI document of this server."""
    return reply(openapi_document())


def routes() -> tuple[HttpRoute, ...]:
    """Return all routes."""
    found = (each for module in MODULES for each in vars(module).values() if isinstance(each, HttpRoute))
    return (*found, document)


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """Matching route: its path template, its rule, and the value of its first parameter."""

    template: str
    rule: Rule
    target: str | None


def find_route(method: str, path: str) -> RouteMatch | None:
    """Return the route of a request; HEAD uses the route of GET. None if no route has this method and path."""
    for pattern, each in _by_method.get("GET" if method == "HEAD" else method, ()):
        found = pattern.fullmatch(path)
        if found is not None:
            return RouteMatch(each.path, each.rule, found[1] if pattern.groups else None)
    return None


def templates_at(path: str) -> Iterator[str]:
    """Yield the templates that match a path, for any method."""
    for method in _by_method:
        if (found := find_route(method, path)) is not None:
            yield found.template


def _pattern(template: str) -> re.Pattern[str]:
    text = re.sub(r"\\\{\w+:path\\\}", "(.+)", re.escape(template))
    return re.compile(re.sub(r"\\\{\w+\\\}", "([^/]+)", text), re.DOTALL)


_by_method: dict[str, list[tuple[re.Pattern[str], HttpRoute]]] = {}
for _each in routes():
    _by_method.setdefault(_each.method, []).append((_pattern(_each.path), _each))


# --- the OpenAPI document ---------------------------------------------------------------------------------

ANYWHERE = (400, 401, 403, 405, 429, 500, 503, 504)
"""Statuses of any route that needs a key."""

WITH_BODY = (408, 413, 415)

_TEXT = {"type": "string"}
_EVENTS = {"description": "Server-sent events; docs/server.md says which. This dialect has no schema for one of them."}

DESCRIPTIONS = {
    400: "The request is not valid",
    401: "No token, or an unknown one",
    403: "The caller lacks the permission",
    404: "There is no such resource, or the caller may not see it",
    405: "The path does not support this method",
    408: "The body was not complete in time",
    409: "The resource is not in a state that allows this",
    413: "The body is too long",
    415: "The body is not JSON",
    429: "Too many requests; Retry-After says when to try again",
    499: "It was cancelled",
    500: "The server failed with an internal error",
    502: "A model's provider failed",
    503: "A limit of the server is reached, or the server is shutting down; Retry-After says when to try again",
    504: "The request took too long",
}


@cache
def openapi_document() -> Json:
    """Return the OpenAPI document, which is made once."""
    described = [each for each in routes() if each.tag != "page"]
    types = [kind for each in described for kind in (each.body, each.gives) if kind not in (None, dict)]
    schemas, components = msgspec.json.schema_components(
        [*types, ErrorBody], ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas[:-1], strict=True))
    paths: dict[str, dict[str, Json]] = {}
    for each in described:
        shown = re.sub(r"\{(\w+):path\}", r"{\1}", each.path)
        paths.setdefault(shown, {})[each.method.lower()] = _operation(each, by_type, schemas[-1])
    return {
        "openapi": "3.1.0",
        "info": {"title": "Callboard", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: HttpRoute, by_type: dict[Any, Json], error: Json) -> Json:
    operation: dict[str, Json] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [route.tag],
        "responses": _responses(route, by_type, error),
    }
    parameters = [*_path_parameters(route), *_query_parameters(route)]
    if route.resumes:
        about = "The id of the last event received; the stream resumes after it."
        schema = {"type": "string", "pattern": "^[0-9]{0,15}$"}
        parameters.append({"name": "Last-Event-ID", "in": "header", "schema": schema, "description": about})
    if parameters:
        operation["parameters"] = parameters
    if route.body is not None:
        content = {"application/json": {"schema": by_type[route.body]}}
        operation["requestBody"] = {"required": not route.optional_body, "content": content}
    if route.rule.open:
        operation["security"] = []
    return operation


def _operation_id(route: HttpRoute) -> str:
    words = re.sub(r"[^a-z0-9]+", "_", re.sub(r"[{}]", "", route.path.removeprefix("/v1")).lower()).strip("_")
    return f"{route.method.lower()}_{words or 'page'}"


def _responses(route: HttpRoute, by_type: dict[Any, Json], error: Json) -> Json:
    told = {"application/json": {"schema": error}}
    statuses = set(route.errors) | (set() if route.rule.open else set(ANYWHERE))
    statuses |= set(WITH_BODY) if route.body is not None else set()
    answers: dict[str, Json] = {
        str(status): {"description": DESCRIPTIONS[status], "content": told} for status in sorted(statuses)
    }
    if route.status in DESCRIPTIONS:  # a route that is not implemented
        return answers | {str(route.status): {"description": DESCRIPTIONS[route.status], "content": told}}
    content: dict[str, Json] = {media: {"schema": _EVENTS if media == SSE else _TEXT} for media in route.media}
    if route.gives is not None:
        content["application/json"] = {"schema": by_type.get(route.gives, {"type": "object"})}
    if route.gives is dict:  # health replies have a body whatever the status
        for answer in answers.values():
            answer["content"] = {"application/json": {"schema": {"type": "object"}}}
    success: dict[str, Json] = {"description": "Done"}
    if content:
        success["content"] = content
    made = {} if route.made is None else {str(route.made): {**success, "description": "Made"}}
    return {str(route.status): success, **made, **answers}


def _path_parameters(route: HttpRoute) -> list[Json]:
    names = re.findall(r"\{(\w+)(?::path)?\}", route.path)
    schema = {"type": "string", "minLength": 1}
    return [{"name": name, "in": "path", "required": True, "schema": schema} for name in names]


def _query_parameters(route: HttpRoute) -> list[Json]:
    if route.query is None:
        return []
    schema = msgspec.json.schema(route.query)
    properties: dict[str, Json] = schema["$defs"][route.query.__name__]["properties"]
    found = []
    for name, kind in properties.items():
        given = {key: value for key, value in kind.items() if key != "default"}
        if "anyOf" in given:  # a query can't express null
            (given,) = [each for each in given["anyOf"] if each != {"type": "null"}]
        found.append({"name": name, "in": "query", "required": False, "schema": given})
    return found
