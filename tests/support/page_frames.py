"""Events of made-up runs, as they come over the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

Json = Any
BEGUN = datetime(2026, 11, 3, 10, 0, 0, tzinfo=UTC)


def event(run: str, kind: str, actor: str = "", /, id: str = "", **data: Json) -> Json:
    """One event of `/run/actor`; the server gives it its number."""
    path = f"/{run}/{actor}".rstrip("/")
    made = {"ts": stamp(1), "run": run, "actor": path, "parent": path.rpartition("/")[0] or "/", "kind": kind}
    return {**made, **({"id": id} if id else {}), "data": data}


def stamp(seconds: float) -> str:
    return (BEGUN + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def info(run: str, **fields: Json) -> Json:
    """The run as lists show it."""
    plain = {"target": "g", "name": "g", "dialect": "agent", "title": "", "status": "running", "owner": "local"}
    times = {"started": stamp(0), "ended": None, "seq": 0, "model": "fake:model", "prompt": "", "session": None}
    used = {"open_questions": 0, "input_tokens": 0, "output_tokens": 0, "cost": 0.0, "error": None, "output": ""}
    return {"run": run, **plain, **times, **used, "exit_code": None, **fields}


def opening(run: str, name: str = "lead") -> list[Json]:
    """A run of one agent, which has been asked and has not said anything yet."""
    return [
        event(run, "run.started", target=name, name=name, dialect="agent", model="fake:model"),
        event(run, "actor.spawned"),
        event(run, "actor.spawned", name),
        event(run, "agent.started", name, agent=name),
        event(run, "llm.request", name, id="llm-1", model="fake:model", messages=1),
    ]


def delta(run: str, text: str, name: str = "lead") -> Json:
    return event(run, "llm.delta", name, id="llm-1", text=text)


def asked(run: str, id: str, kind: str, text: str, /, **more: Json) -> Json:
    question = {"id": id, "actor": f"/{run}/lead", "run": run, "kind": kind, "text": text, **more}
    return event(run, "question.asked", "lead", id=id, question=question)


def crowd(run: str, number: int) -> list[Json]:
    """An agent with that many children, each of which is asking its model."""
    events = [*opening(run), event(run, "actor.spawned", "lead/children")]
    for each in range(number):
        path = f"lead/children/child_{each:04d}"
        events += [
            event(run, "actor.spawned", path),
            event(run, "agent.started", path, agent="explore", depth=1),
            event(run, "llm.request", path, id=f"llm-{each + 2}", model="fake:model", messages=1),
        ]
    return events
