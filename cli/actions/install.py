"""Installation of bundles for `callboard install`: previews on stderr, questions at the terminal, and the outcome."""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from ...actors.io.directories import config_dir as configured
from ...actors.runs.root import Root
from ...actors.work.bundles import manage
from ...actors.work.bundles.manage import InstallPrompts, InstallResult, Wishes
from ...actors.work.bundles.source import BUILT_IN
from ...actors.work.bundles.transaction import Bundle, read_manifest
from ...protocol.errors import CallboardError, NobodyToAsk
from ...protocol.kernel.questions import Question
from ...supervisors import Actor
from ..frame import act, person_at_terminal
from ..render.text import columns, counted, json_object, safe

Body = Callable[[Actor, InstallPrompts], Awaitable[list[InstallResult]]]


def install_bundle(
    source: str | None,
    *,
    filters: tuple[str, ...],
    path: str,
    force: bool,
    yes: bool,
    no_input: bool,
    config_dir: str | None,
) -> int:
    """Install from a source, or the bundle that ships with Callboard; return 1 if the user declined, else 0."""
    base, _ = configured(config_dir, os.environ)
    wishes = Wishes(filters=filters, path=path, force=force, yes=yes)

    async def body(me: Actor, person: InstallPrompts) -> list[InstallResult]:
        text = BUILT_IN if source is None else source
        return [await manage.install(me, base, text, wishes, person, os.environ, here=Path.cwd())]

    return _played(body, config_dir, no_input=no_input)


def update_bundles(name: str | None, *, force: bool, yes: bool, no_input: bool, config_dir: str | None) -> int:
    """Update one bundle or all; return 1 if the user declined one, else 0.

    An error of one of all bundles is printed and does not stop the others. It is raised if no bundle could be updated.
    A question without a terminal ends the update at once (`NobodyToAsk`).
    """
    base, _ = configured(config_dir, os.environ)
    wishes = Wishes(force=force, yes=yes)

    async def body(me: Actor, person: InstallPrompts) -> list[InstallResult]:
        if name is not None:
            return [await manage.update(me, base, name, wishes, person, os.environ)]
        done, failed = [], None
        for each in bundle_names(config_dir):
            try:
                done.append(await manage.update(me, base, each, wishes, person, os.environ))
            except NobodyToAsk:
                # Every further bundle would need the same answer.
                raise
            except CallboardError as error:
                sys.stderr.write(f"callboard: {safe(each)}: {safe(str(error))}\n")
                failed = error
        if failed is not None and not done:
            raise failed
        return done or [InstallResult(name="", lines=("no bundle is installed",))]

    return _played(body, config_dir, no_input=no_input)


def remove_bundle(name: str, *, force: bool, yes: bool, no_input: bool, config_dir: str | None) -> int:
    """Remove a bundle; return 1 if the user declined, else 0."""
    base, _ = configured(config_dir, os.environ)

    async def body(_me: Actor, person: InstallPrompts) -> list[InstallResult]:
        return [await manage.remove(base, name, Wishes(force=force, yes=yes), person)]

    return _played(body, config_dir, no_input=no_input)


def list_bundles(config_dir: str | None, *, as_json: bool) -> str:
    """Return the installed bundles, as a table or as JSON."""
    base, _ = configured(config_dir, os.environ)
    found = manage.installed(base)
    if as_json:
        bundles = [
            {
                "name": name,
                "url": bundle.url,
                "ref": bundle.ref,
                "path": bundle.path,
                "commit": bundle.commit,
                "filter": list(bundle.filter),
                "date": bundle.date,
                "files": list(bundle.files),
                "servers": list(bundle.servers),
                "changed": changed,
            }
            for name, (bundle, changed) in found.items()
        ]
        return json_object(bundles=bundles)
    if not found:
        return f"No bundle is installed in {base}; callboard install GIT_URL installs one.\n"
    rows = [
        (name, _from(bundle), bundle.commit[:12], _held(bundle), bundle.date[:10])
        for name, (bundle, _) in found.items()
    ]
    changed = [f"  changed by you: {safe(path)} ({safe(name)})" for name, (_, paths) in found.items() for path in paths]
    return "\n".join([*columns([tuple(map(safe, row)) for row in rows]), *changed]) + "\n"


def _from(bundle: Bundle) -> str:
    return "comes with Callboard" if bundle.url == BUILT_IN else bundle.origin


def _held(bundle: Bundle) -> str:
    servers = f", {counted(len(bundle.servers), 'server')}" if bundle.servers else ""
    return f"{counted(len(bundle.files), 'file')}{servers}"


def bundle_names(config_dir: str | None) -> list[str]:
    """Return the names of installed bundles; none if the record can't be read."""
    # For completion, which can't print errors; the command itself reports them.
    with suppress(CallboardError, OSError):
        return list(read_manifest(configured(config_dir, os.environ)[0]).bundles)
    return []


def _played(body: Body, config_dir: str | None, *, no_input: bool) -> int:
    at_terminal = person_at_terminal(no_input=no_input)

    async def by_actor(me: Actor, root: Root) -> list[InstallResult]:
        async def ask(text: str) -> bool:
            # people=True: programs of the bundle will run here, so no model may agree.
            question = Question(
                id=root.kernel.questions.new_id(), actor=me.path, text=text, kind="confirm", people=True
            )
            try:
                return (await me.ask_person(question)).text == "yes"
            except NobodyToAsk as error:
                raise NobodyToAsk(f"nothing was changed: '{text}' needs an answer at a terminal, or --yes") from error

        return await body(me, InstallPrompts(tell=_print_line, ask=ask))

    done = act(by_actor, config_dir=config_dir, person=at_terminal)
    for each in done:
        for line in each.lines:
            sys.stdout.write(f"{safe(line)}\n")
    return 1 if any(each.refused for each in done) else 0


def _print_line(text: str) -> None:
    sys.stderr.write("".join(f"{safe(line)}\n" for line in text.splitlines()))
    sys.stderr.flush()
