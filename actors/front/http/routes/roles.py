"""Routes for roles: list, read, write, delete. Built-in ones can be hidden, and never changed."""

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
from ....io.named_files import FilePlace
from ....work.roles import FILES, locate, save
from ...access.scopes import DELETE_ROLE, READ_ROLES, WRITE_ROLE
from ...control.requests import check_role as check_file
from ..call import HttpCall, reply, route
from ..shapes.api import RoleBody, RoleDetail, RolesList, RoleTold

_route = partial(route, tag="roles")


@_route("GET", "/v1/roles", READ_ROLES, gives=RolesList)
async def listed(call: HttpCall) -> Response:
    """List the roles."""
    return reply(RolesList(roles=await trio.to_thread.run_sync(_all, call)))


@_route("GET", "/v1/roles/{name}", READ_ROLES, gives=RoleDetail, errors=(404,))
async def one(call: HttpCall) -> Response:
    """Return a role with its file."""
    return reply(await trio.to_thread.run_sync(_one, call))


@_route("PUT", "/v1/roles/{name}", WRITE_ROLE, gives=RoleDetail, made=201)
async def write(call: HttpCall, body: RoleBody) -> Response:
    """Create a role (201), or replace an existing one."""
    made, new = await trio.to_thread.run_sync(_write, call, body)
    return reply(made, 201 if new else 200, {"location": f"/v1/roles/{quote(made.name)}"} if new else None)


@_route("DELETE", "/v1/roles/{name}", DELETE_ROLE, status=204, errors=(404,))
async def remove(call: HttpCall) -> Response:
    """Delete a role. Built-in roles can't be deleted."""
    base = call.api.root.config_dir
    with _without_directories(base):
        await trio.to_thread.run_sync(FILES.delete, call.path("name"), base)
    return Response(status_code=204)


async def check_role(call: HttpCall, name: str | None, model: str | None = None) -> None:
    """Raise an error if the role does not exist, or the caller may not use its model.

    Args:
        model: model that replaces the role's.

    Raises:
        UsageError: there is no such role, or it is invalid.
        Denied: its model is not allowed.
    """
    if name is None:
        return
    try:
        with _without_directories(call.api.root.config_dir):
            await trio.to_thread.run_sync(partial(check_file, call.caller, name, call.api.root, model=model))
    except NotFound:
        raise UsageError(f"there is no role '{name[:60]}'; list the roles with GET /v1/roles") from None


def _all(call: HttpCall) -> list[RoleTold]:
    return [_role_summary(place) for place in FILES.places(call.api.root.config_dir)]


def _one(call: HttpCall) -> RoleDetail:
    place = locate(call.path("name"), call.api.root.config_dir)
    with _without_directories(call.api.root.config_dir):
        text = FILES.text_of(place.file)
        return _detail(place, FILES.load(place), text)


def _write(call: HttpCall, body: RoleBody) -> tuple[RoleDetail, bool]:
    name, base = call.path("name"), call.api.root.config_dir
    with _without_directories(base):
        role, new = save(name, body.text, base)
        place = locate(name, base)
        return _detail(place, role, FILES.text_of(place.file)), new


def _role_summary(place: FilePlace) -> RoleTold:
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


def _detail(place: FilePlace, role: Role, text: str) -> RoleDetail:
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


def _without_path(text: str, place: FilePlace) -> str:
    """Remove the file's directory from a text."""
    return text.replace(str(place.file), place.file.name)


@contextmanager
def _without_directories(base: Path) -> Iterator[None]:
    """Remove the directory of role files from errors of the block: callers must not see it."""
    homes = [f"{home}{os.sep}" for home in (FILES.directory(base), FILES.ours)]

    def without_paths(text: str) -> str:
        for home in homes:
            text = text.replace(home, "")
        return text

    try:
        yield
    except InvalidFile as error:
        problems = [msgspec.structs.replace(each, file=without_paths(each.file)) for each in error.problems]
        raise InvalidFile(without_paths(str(error)), problems) from None
    except NotKept as error:
        raise NotKept(without_paths(str(error))) from error
