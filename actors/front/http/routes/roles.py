"""Roles: listed, read, written, removed. Those that come with Callboard can be hidden, and never changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgspec
import trio
from starlette.responses import Response

from .....protocol.errors import CallboardError, InvalidFile, NotFound, NotKept, UsageError
from .....protocol.role import Role
from ....io.named_files import Place
from ....work.roles.files import FILES, locate, save
from ...access.scopes import DELETE_ROLE, READ_ROLES, WRITE_ROLE
from ...control.requests import check_role as check_file
from ..call import Call, reply, route
from ..shapes.roles import RoleBody, RoleDetail, RolesList, RoleTold

_route = partial(route, tag="roles")


@_route("GET", "/v1/roles", READ_ROLES, gives=RolesList)
async def listed(call: Call) -> Response:
    """Every role that can be named."""
    return reply(RolesList(roles=await trio.to_thread.run_sync(_all, call)))


@_route("GET", "/v1/roles/{name}", READ_ROLES, gives=RoleDetail, errors=(404,))
async def one(call: Call) -> Response:
    """A role, with its file."""
    return reply(await trio.to_thread.run_sync(_one, call))


@_route("PUT", "/v1/roles/{name}", WRITE_ROLE, gives=RoleDetail, made=201)
async def write(call: Call, body: RoleBody) -> Response:
    """Write a role, a new one (201) or in the place of what is there."""
    made, new = await trio.to_thread.run_sync(_write, call, body)
    return reply(made, 201 if new else 200, {"location": f"/v1/roles/{quote(made.name)}"} if new else None)


@_route("DELETE", "/v1/roles/{name}", DELETE_ROLE, status=204, errors=(404,))
async def remove(call: Call) -> Response:
    """Remove a role. One that comes with Callboard stays."""
    base = call.api.root.config_dir
    with _without_directories(base):
        await trio.to_thread.run_sync(FILES.delete, call.path("name"), base)
    return Response(status_code=204)


async def check_role(call: Call, name: str | None, model: str | None = None) -> None:
    """Raise `UsageError` if there is no such role, or it can't be used like this; `Denied` if its model is not allowed.

    Args:
        model: what goes before the role's.
    """
    if name is None:
        return
    try:
        with _without_directories(call.api.root.config_dir):
            await trio.to_thread.run_sync(partial(check_file, call.caller, name, call.api.root, model=model))
    except NotFound:
        raise UsageError(f"there is no role '{name[:60]}'; GET /v1/roles lists those there are") from None


def _all(call: Call) -> list[RoleTold]:
    return [_told(place) for place in FILES.places(call.api.root.config_dir)]


def _one(call: Call) -> RoleDetail:
    place = locate(call.path("name"), call.api.root.config_dir)
    with _without_directories(call.api.root.config_dir):
        text = FILES.text_of(place.file)
        return _detail(place, FILES.load(place), text)


def _write(call: Call, body: RoleBody) -> tuple[RoleDetail, bool]:
    name, base = call.path("name"), call.api.root.config_dir
    with _without_directories(base):
        role, new = save(name, body.text, base)
        place = locate(name, base)
        return _detail(place, role, FILES.text_of(place.file)), new


def _told(place: Place) -> RoleTold:
    source = "library" if place.built_in else "config"
    try:
        role = FILES.load(place)
    except CallboardError as error:
        return RoleTold(name=place.name, source=source, problem=_without_path(str(error), place))
    return RoleTold(
        name=place.name,
        source=source,
        kind=role.kind,
        description=role.description,
        model=role.model,
        arguments=role.arguments,
    )


def _detail(place: Place, role: Role, text: str) -> RoleDetail:
    return RoleDetail(
        name=place.name,
        source="library" if place.built_in else "config",
        kind=role.kind,
        description=role.description,
        model=role.model,
        arguments=role.arguments,
        text=text,
        warnings=[_without_path(str(problem), place) for problem in role.problems],
    )


def _without_path(text: str, place: Place) -> str:
    """What is said of a file, without where on this machine it lies."""
    return text.replace(str(place.file), place.file.name)


@contextmanager
def _without_directories(base: Path) -> Iterator[None]:
    """Errors of the block name files of roles without their directory, which is nothing for callers."""
    homes = [f"{home}{os.sep}" for home in (FILES.directory(base), FILES.ours)]

    def shown(text: str) -> str:
        for home in homes:
            text = text.replace(home, "")
        return text

    try:
        yield
    except InvalidFile as error:
        problems = [msgspec.structs.replace(each, file=shown(each.file)) for each in error.problems]
        raise InvalidFile(shown(str(error)), problems) from None
    except NotKept as error:
        raise NotKept(shown(str(error))) from error
