"""Application: `routes` behind starlette's router, and one mapping of all errors."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cache
from types import NoneType
from typing import Any, Union, get_args, get_type_hints

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send

from ....protocol.control.errors import error_for_client
from ....protocol.decoding import convert, decode_json
from ....protocol.errors import CallboardError, UsageError
from ...runs.trace_context import continue_trace
from .call import Api, HttpCall, HttpRoute
from .errors import CODES, BodyTooSlow, Watched, WrongMedia, error_reply, refusal
from .routes import routes

log = logging.getLogger("callboard.http")

JSON_TYPES = ("", "application/json", "application/x-www-form-urlencoded")
"""Body types that are parsed as JSON; the last is curl's default for everything."""

BODY_WITHIN = 30.0
"""Seconds that a client has to send a body."""

GONE = 499
"""Status for a client that has disconnected (nginx's)."""


def make_app(api: Api) -> ASGIApp:
    """Return the application, without checks of callers (see `middleware`)."""
    by_path: dict[str, dict[str, HttpRoute]] = {}
    for route in routes():
        by_path.setdefault(route.path, {})[route.method] = route
    paths = [Path(path, endpoint=_Endpoint(api, by_method)) for path, by_method in by_path.items()]
    return Starlette(routes=paths, exception_handlers={HTTPException: _refused_by_starlette})


class _Endpoint:
    """Endpoint of one path with all its methods."""

    def __init__(self, api: Api, by_method: dict[str, HttpRoute]) -> None:
        self._api = api
        self._by_method = by_method

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        continue_trace(request.headers)
        call = HttpCall(self._api, request)
        watched = Watched(send)
        try:
            answer = await self._answer(call)
            await answer(scope, receive, watched)
        except CallboardError as error:
            caller = scope["state"].get("caller")  # public routes have none
            shown = error if caller is None else error_for_client(caller, error)
            await self._send_error(watched, refusal(shown, call.id), scope, receive)
        # The client is gone. The status is for the log line and the metrics (`Frame`).
        except ClientDisconnect:
            await self._send_error(watched, Response(status_code=GONE), scope, receive)
        except Exception:  # clients must not see internals
            log.exception("%s %s crashed (request %s)", request.method, request.url.path, call.id)
            text = f"something went wrong here; the log says more of request {call.id}"
            await self._send_error(watched, error_reply(500, "internal", text, call.id), scope, receive)

    async def _send_error(self, watched: Watched, response: Response, scope: Scope, receive: Receive) -> None:
        if watched.status is None:
            await response(scope, receive, watched)

    async def _answer(self, call: HttpCall) -> ASGIApp:
        method = call.request.method
        route = self._by_method.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(_allowed(self._by_method))
            text = f"{method} is not what can be done here; {allowed} is"
            return error_reply(405, CODES[405], text, call.id, {"allow": allowed})
        given = []
        if route.query is not None:
            given.append(_query(call.request, route.query))
        if route.body is not None:
            given.append(await _body(call.request, route))
        return await route.handler(call, *given)


def _allowed(by_method: Iterable[str]) -> list[str]:
    names = set(by_method)
    return sorted(names | {"HEAD"} if "GET" in names else names)


def _query(request: Request, kind: type) -> object:
    names = [field.encode_name for field in msgspec.structs.fields(kind)]
    given = dict(request.query_params)
    if strange := [name for name in given if name not in names]:
        raise UsageError(f"the query: there is no '{strange[0][:60]}'; there is {', '.join(names)}")
    values = {}
    for name, text in given.items():
        try:
            values[name] = convert(text, _query_types(kind)[name], strict=False)
        except msgspec.ValidationError as error:
            raise UsageError(f"the query's {name}: {error}") from None
    return kind(**values)


@cache
def _query_types(kind: type) -> dict[str, Any]:
    """Return the types of a query's fields without None, which a query can't express: `null` is an ordinary word."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        name: Union[tuple(each for each in get_args(hint) if each is not NoneType)]  # noqa: UP007 - of a variable
        if NoneType in get_args(hint)
        else hint
        for name, hint in hints.items()
    }


async def _body(request: Request, route: HttpRoute) -> object:
    assert route.body is not None
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in JSON_TYPES:
        raise WrongMedia(f"the body must be application/json, not {media}")
    body = b""
    with trio.move_on_after(BODY_WITHIN) as waiting:
        body = await request.body()
    if waiting.cancelled_caught:
        raise BodyTooSlow(f"the body did not come to its end within {BODY_WITHIN:g} s")
    if not body and route.optional_body:
        body = b"{}"
    try:
        return decode_json(body, route.body)
    except msgspec.ValidationError as error:
        raise UsageError(f"the body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"the body is no JSON: {error}") from None


async def _refused_by_starlette(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = CODES.get(error.status_code, "http")
    text = f"there is nothing at {request.url.path}" if error.status_code == 404 else error.detail
    id = getattr(request.state, "request_id", "")
    return error_reply(error.status_code, code, text, id, dict(error.headers or {}))
