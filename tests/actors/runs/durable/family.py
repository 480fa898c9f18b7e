"""Agents that spawn others, two deep, with all that goes on between them; a model for them, and their effects.

    lead        tasks a, b (which waits for a); mid, slow, timed; answers mid's question; cancels slow, which asks
    ├─ a        an effect, a question to a person, a letter to its parent
    ├─ mid      an effect, a question to its parent; reads letters, writes one to a child that has ended
    │  ├─ one   a question to a person, an effect; reads its sibling's letter
    │  └─ two   a letter to its sibling, a question to its parent, one to a person, an effect
    ├─ slow     an effect, a question that nobody answers
    ├─ timed    an effect, and a model that never answers: its time is up
    ├─ served   effects of an MCP server, which is another one when the run goes on
    └─ b        an effect; is not collected

Three questions to a person are open at once, and answered then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from everything import DO
from played_agents import HANGS, Call, KilledAgents, Played, Said, plain
from support.fake_models import FakeModels

from callboard.protocol.journal import Intends, MessageRow

NOTING = Path(__file__).with_name("noting.py")

PERSONS = 3
"""Questions that a person answers."""

EFFECTS = ["a", "b", "mid", "one", "two", "slow", "timed", "n1", "n2"]

ANEW = "The MCP server 'notes' runs anew"


def lead(said: Said, _: str) -> list[Call] | str:
    if not said.calls:
        return [
            ("agent__task_create", {"subject": "a", "agent": "leaf", "prompt": "A"}),
            ("agent__task_create", {"subject": "b", "agent": "leaf", "prompt": "B", "blocked_by": ["task_1"]}),
            ("agent__spawn", {"agent": "mid", "prompt": "MID"}),
            ("agent__spawn", {"agent": "leaf", "prompt": "SLOW"}),
            ("agent__spawn", {"agent": "leaf", "prompt": "TIMED", "timeout": 1.5}),
            ("agent__spawn", {"agent": "served", "prompt": "SERVED"}),
        ]
    mid, slow, timed, served = (said.child(prompt) for prompt in ("MID", "SLOW", "TIMED", "SERVED"))
    a = said.of("agent__task_create", subject="a")[0]["agent_id"]
    if not said.of("agent__send_message"):
        return [("agent__send_message", {"id": mid, "message": "down"})]
    if answer := said.to_answer("LEAD?", "lead says yes"):
        return answer
    if any("HOLD" in question for question in said.asked.values()) and not said.of("agent__cancel"):
        return [("agent__cancel", {"id": slow})]
    for id in (a, mid, served, timed):
        if said.collected(id) is None:
            return [("agent__collect", {"id": id})]
    lists = said.of("agent__task_list")
    if not lists or lists[-1]["tasks"][1]["status"] != "completed" or said.collected(slow) is None:
        return [("agent__task_list", {"look": len(lists)})]
    if not said.of("agent__check_inbox"):
        return [("agent__check_inbox", {})]
    ends = [f"{name}: {_end(said.collected(id))}" for name, id in (("a", a), ("mid", mid), ("slow", slow))]
    return "; ".join([*ends, f"timed: {_end(said.collected(timed))}", f"read {_letters(said)}"])


def mid(said: Said, _: str) -> list[Call] | str:
    if not said.calls:
        return [("agent__spawn", {"agent": "leaf", "prompt": "ONE"}), ("execute_command", {"command": "mid"})]
    one, two = said.child("ONE"), said.child("TWO")
    if not two:
        return [("agent__spawn", {"agent": "leaf", "prompt": f"TWO {one}"})]
    if not said.of("user__input"):
        return [("user__input", {"question": "LEAD? mid asks"})]
    if answer := said.to_answer("MID?", "mid says yes"):
        return answer
    for id in (one, two):
        if said.collected(id) is None:
            return [("agent__collect", {"id": id})]
    if not said.of("agent__send_message"):
        return [
            ("agent__send_message", {"id": one, "message": "too late"}),
            ("agent__send_message", {"id": "parent", "message": "up"}),
            ("agent__check_inbox", {}),
        ]
    late = "ended" in said.of("agent__send_message")[0]["message"]
    ends = f"one: {_end(said.collected(one))}, two: {_end(said.collected(two))}"
    return f"{ends}, {said.of('user__input')[0]['answer']}, {late}, read {_letters(said)}"


def leaf(said: Said, prompt: str) -> list[Call] | str:
    name, other = [*prompt.split(), ""][:2]
    effect: Call = ("execute_command", {"command": name.lower()})
    person: Call = ("user__input", {"question": f"PERSON {name}"})
    steps: dict[str, list[Call]] = {
        "A": [effect, person, ("agent__send_message", {"id": "parent", "message": "from a"})],
        "B": [effect],
        "ONE": [person, effect, ("agent__check_inbox", {})],
        "TWO": [
            ("agent__send_message", {"id": other, "message": "hi"}),
            ("user__input", {"question": "MID? two asks"}),
            person,
            effect,
        ],
        "SLOW": [effect, ("user__input", {"question": "HOLD"})],
        "TIMED": [effect],
    }
    if name == "TIMED" and said.calls:
        return [HANGS]
    if len(said.calls) < len(steps[name]):
        return [steps[name][len(said.calls)]]
    answers = [result["answer"] for result in said.of("user__input")]
    return f"{name} {answers} {_letters(said) if said.of('agent__check_inbox') else ''}"


def served(said: Said, _: str) -> list[Call] | str:
    steps: list[Call] = [
        ("notes__note", {"text": "n1"}),
        ("notes__notes", {}),
        ("notes__note", {"text": "n2"}),
        ("notes__notes", {}),
    ]
    return [steps[len(said.calls)]] if len(said.calls) < len(steps) else "SERVED"


def _end(result: dict[str, Any]) -> str:
    return f"[{result.get('exit_status', result['status'])} {plain(result['output'])}]"


def _letters(said: Said) -> list[str]:
    found = said.of("agent__check_inbox")[0]["messages"]
    return sorted(each["payload"].get("content") or each["payload"]["task_id"] for each in found)


AGENTS = {
    "lead": Played(lead, can_spawn_agents=True, max_concurrent_agents=10),
    "mid": Played(mid, can_spawn_agents=True),
    "leaf": Played(leaf),
    "served": Played(served, mcp_servers=["notes"], mcp_tools="direct"),
}


class KilledFamily(KilledAgents):
    """Where they are played."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        super().__init__(home, models, AGENTS, together=PERSONS)

    def write(self, config: Path) -> None:
        super().write(config)
        env = {"DO": DO.format(name="NAME", world=self.world)}
        entry = {"command": sys.executable, "args": ["-S", str(NOTING)], "env": env}
        (config / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))

    def news(self) -> int:
        """How often the agent that uses the MCP server was told that it is another one."""
        last = [request for request in self._models.requests if request.system.startswith("AGENT served")][-1]
        return sum(ANEW in str(message["content"]) for message in last.json["messages"])

    def has_used(self) -> bool:
        """Whether that agent has used the server, and has not ended, as far as is on disk."""
        rows = [row for path, row in self.rows() if path.startswith("agent_served_")]
        ended = any(isinstance(row, MessageRow) and "SERVED" in str(row.message) for row in rows[1:])
        return not ended and any(isinstance(row, Intends) for row in rows)
