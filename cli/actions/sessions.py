"""Sessions for `callboard sessions`: list, show, export, rename, delete, empty and compress."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ...actors.io.directories import config_dir as configured
from ...actors.runs.sessions.export import Form, exported
from ...actors.runs.sessions.session_locks import forget_all
from ...actors.runs.sessions.store import SessionMeta, SessionStore, Stored
from ...protocol.errors import NotFound, UsageError
from .. import logging
from ..frame import play
from ..render.progress import ProgressDisplay
from ..render.text import columns, fitted, one_line, safe

if TYPE_CHECKING:
    from ...actors.runs.target import Loaded


def _store(config_dir: str | None) -> SessionStore:
    logging.configure()
    return SessionStore(configured(config_dir, os.environ)[0])


def _found(store: SessionStore, name: str, agent: str | None) -> Stored:
    return store.open(*store.find(name, agent))


@contextmanager
def _held(store: SessionStore, stored: Stored) -> Iterator[None]:
    lock = store.try_hold(stored.id, stored.agent)
    if lock is None:
        raise store.in_use(stored)
    with lock:
        yield


def stored_variables(session: str, agent: Loaded, config_dir: str | None) -> dict[str, str]:
    """Return the values of an agent's variables stored in its session; none if there is no such session."""
    from ...actors.runs.session_run import agent_of

    try:
        return {**_found(_store(config_dir), session, agent_of(agent)).session.agent_variables}
    except NotFound:
        return {}


def list_sessions(agent: str | None, *, as_json: bool, config_dir: str | None) -> str:
    """Return the sessions of an agent, or of all without one, as a table or as JSON."""
    found = _store(config_dir).list(agent, everywhere=agent is None)
    if as_json:
        return json.dumps([msgspec.to_builtins(meta) for meta in found], indent=2, ensure_ascii=False) + "\n"
    if not found and agent is not None:
        return f'agent {safe(agent)} has no sessions: callboard run {safe(agent)} -s NAME "..." starts one\n'
    if not found:
        return 'no sessions yet: callboard ask -s NAME "..." starts one\n'
    rows = [
        (safe(meta.alias or meta.id), safe(meta.agent or "-"), _when(meta), one_line(meta.title or ""))
        for meta in found
    ]
    return fitted(columns(rows))


def _when(meta: SessionMeta) -> str:
    return datetime.fromisoformat(meta.last_modified).astimezone().strftime("%Y-%m-%d %H:%M")


def show_session(session: str, agent: str | None, form: Form, config_dir: str | None) -> str:
    """Return the turns of a session, as JSON, or as Markdown with control characters escaped."""
    store = _store(config_dir)
    text = exported(_found(store, session, agent), form)
    return text if form == "json" else "".join(f"{safe(line)}\n" for line in text.splitlines())


def export_session(session: str, file: str | None, form: str | None, agent: str | None, config_dir: str | None) -> None:
    """Write the turns of a session into a file, or to stdout without one.

    Args:
        form: `json`, else Markdown; by default JSON for a file that ends with `.json`.

    Raises:
        UsageError: the file can't be written.
    """
    store = _store(config_dir)
    wanted: Form = "json" if (form or Path(file or "").suffix.lstrip(".")) == "json" else "markdown"
    text = exported(_found(store, session, agent), wanted)
    if file is None or file == "-":
        sys.stdout.write(text)
        return
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise UsageError(f"{file} can't be written: {error.strerror}") from None


def path_of(session: str, agent: str | None, config_dir: str | None) -> Path:
    """Return the path of a session's file. A session of Loki is first copied to its new place."""
    store = _store(config_dir)
    id, whose = store.find(session, agent)
    return _there(store, id, whose)


def _there(store: SessionStore, id: str, agent: str | None) -> Path:
    path = store.path(id, agent)
    if not path.is_file():
        # A session of Loki is copied to its new place when it is first opened.
        store.open(id, agent)
    return path


def rename_session(session: str, name: str, agent: str | None, config_dir: str | None) -> None:
    """Give a session another name. Raises `Conflict` if a process uses the session."""
    store = _store(config_dir)
    stored = _found(store, session, agent)
    with _held(store, stored):
        store.rename(stored.id, name, stored.agent)
    sys.stderr.write(f"callboard: session {safe(stored.label)} is now called {safe(name)}\n")


def delete_sessions(sessions: tuple[str, ...], agent: str | None, config_dir: str | None) -> None:
    """Remove sessions for good.

    Raises:
        NotFound: there is no such session; none was removed.
        Conflict: a session is in use; those named before it were removed.
    """
    store = _store(config_dir)
    found = [(name, *store.find(name, agent)) for name in sessions]  # all must exist before the first is deleted
    for name, id, whose in found:
        _there(store, id, whose)
        lock = store.try_hold(id, whose)
        if lock is None:
            raise store.in_use(store.open(id, whose))
        with lock:
            store.delete(id, whose)
        sys.stderr.write(f"callboard: session {safe(name)} deleted\n")


def empty_session(session: str, agent: str | None, config_dir: str | None) -> None:
    """Remove the history of a session. Raises `Conflict` if a process uses it."""
    store = _store(config_dir)
    stored = _found(store, session, agent)
    with _held(store, stored):
        # Read again under the lock: a turn of another process may have ended since.
        stored = store.fresh(stored)
        forget_all(stored.session)
        store.save(stored)
    sys.stderr.write(f"callboard: session {safe(stored.label)} is empty now\n")


def compress_session(session: str, agent: str | None, config_dir: str | None) -> None:
    """Summarise the history of a session, unless it is too short, and report on stderr whether that was done."""
    done = play(
        lambda root: root.sessions.compress(None, session, agent=agent),
        ProgressDisplay(),
        config_dir=config_dir,
        person=False,
        traced=False,
    )
    what = "is compressed" if done else "is too short to be compressed"
    sys.stderr.write(f"callboard: session {safe(session)} {what}\n")
