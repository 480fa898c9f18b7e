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

Three questions to a person are open at once, and answered then. What a model says depends on the request alone. Each
reply bears a mark of its request, by which one that was asked for again is told.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import trio
from everything import DO, House
from fake_models import Reply, Request

from callboard.protocol.journal import Intends, Told
from callboard.protocol.messages import Replied

NOTING = Path(__file__).with_name("noting.py")

PERSONS = 3
"""Questions that a person answers."""

EFFECTS = ["a", "b", "mid", "one", "two", "slow", "timed", "n1", "n2"]

ANEW = "The MCP server 'notes' runs anew"

_AGENT = """
name: {name}
instructions: {instructions}
global_tools: [execute_command]
can_spawn_agents: {spawns}
max_concurrent_agents: 10
"""

_SERVED = """
name: served
instructions: SERVED
mcp_servers: [notes]
mcp_tools: direct
"""

Call = tuple[str, dict[str, Any]]


class Said:
    """What has become of the calls of a conversation so far.

    Attributes:
        calls: name, arguments and result of each.
        asked: the questions of children that were told, by id.
    """

    def __init__(self, request: Request) -> None:
        self.calls: list[tuple[str, dict[str, Any], Any]] = []
        self.asked: dict[str, str] = {}
        made: dict[str, Call] = {}
        for message in request.json["messages"]:
            for call in message.get("tool_calls") or ():
                function = call["function"]
                made[call["id"]] = function["name"], json.loads(function["arguments"])
            if message["role"] == "tool":
                text, _, notice = message["content"].partition("\n\n{")
                result = json.loads(text) if text.startswith("{") else text
                self.calls.append((*made[message["tool_call_id"]], result))
                for told in (result, json.loads("{" + notice) if notice else None):
                    if isinstance(told, dict):
                        for each in told.get("pending_escalations", ()):
                            self.asked[each["escalation_id"]] = each["question"]

    def of(self, name: str, **arguments: Any) -> list[Any]:
        """The results of calls of this tool with these arguments among others."""
        return [result for tool, given, result in self.calls if tool == name and arguments.items() <= given.items()]

    def child(self, prompt: str) -> str:
        """The id of the child that was spawned with a prompt that begins so."""
        for tool, given, result in self.calls:
            if tool == "agent__spawn" and given["prompt"].startswith(prompt):
                return str(result["id"])
        return ""

    def collected(self, id: str) -> Any:
        """The result of this child, if it was collected."""
        results = self.of("agent__collect", id=id) + self.of("agent__cancel", id=id)
        return next((result for result in results if "output" in result), None)

    def to_answer(self, word: str, reply: str) -> list[Call]:
        """Answers the first question with this word that has no answer yet."""
        for id, question in self.asked.items():
            if word in question and not self.of("agent__reply_escalation", escalation_id=id):
                return [("agent__reply_escalation", {"escalation_id": id, "reply": reply})]
        return []


def lead(said: Said, _: str) -> list[Call] | str:
    if not said.calls:
        return [
            ("agent__task_create", {"subject": "a", "agent": "leaf", "prompt": "A"}),
            ("agent__task_create", {"subject": "b", "agent": "leaf", "prompt": "B", "blocked_by": ["task_1"]}),
            ("agent__spawn", {"agent": "mid", "prompt": "MID"}),
            ("agent__spawn", {"agent": "leaf", "prompt": "SLOW"}),
            ("agent__spawn", {"agent": "leaf", "prompt": "TIMED", "timeout": 3}),
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


def plain(text: str) -> str:
    """Without the marks of requests, and what was said with calls alone; whose time is up has perhaps said nothing."""
    text = re.sub(r"\s*\n\s*", " / ", re.sub(r" ?#[0-9a-f]{12}|timed begins", "", text)).strip(" /")
    return text.replace(" ]", "]")


def children(found: list[dict[str, Any]]) -> list[Any]:
    """What an outcome says of children, as far as it is the same however often the run was killed."""
    told = [[each["agent"], each["status"], plain(each["output"]), children(each["children"])] for each in found]
    return sorted(told, key=repr)


def mark(request: Request) -> str:
    """What tells a request from others."""
    return hashlib.sha256(json.dumps(request.json["messages"]).encode()).hexdigest()[:12]


def answer(world: Path) -> Any:
    """The model of all of them."""
    plays = {"LEAD": lead, "MIDDLE": mid, "LEAF": leaf, "SERVED": served}

    def say(request: Request) -> Reply:
        who = next(name for name in plays if name in request.system)
        prompt = next(m["content"] for m in request.json["messages"] if m["role"] == "user")
        said = Said(request)
        if prompt == "TIMED" and said.calls:
            return Reply(hold=trio.Event())
        says = plays[who](said, prompt)
        begins = f"{prompt.split()[0].lower()} begins" if not said.calls and who != "LEAD" else ""
        if isinstance(says, str):
            return Reply(text=f"{says} #{mark(request)}")
        calls = [
            (name, {"command": DO.format(name=given["command"], world=world)} if "command" in given else given)
            for name, given in says
        ]
        waits = 0.05 if calls[0][0] == "agent__task_list" else 0.0
        return Reply(text=f"{begins} #{mark(request)}", calls=calls, delay=waits)

    return say


class FamilyHouse(House):
    """Where they are played."""

    def write(self, config: Path) -> None:
        for name, instructions, spawns in (("lead", "LEAD", True), ("mid", "MIDDLE", True), ("leaf", "LEAF", False)):
            agent = config / "agents" / name
            agent.mkdir(parents=True)
            spawns_ = str(spawns).lower()
            text = _AGENT.format(name=name, instructions=instructions, spawns=spawns_)
            (agent / "config.yaml").write_text(text)
        agent = config / "agents" / "served"
        agent.mkdir()
        (agent / "config.yaml").write_text(_SERVED)
        env = {"DO": DO.format(name="NAME", world=self.world)}
        entry = {"command": sys.executable, "args": ["-S", str(NOTING)], "env": env}
        (config / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": entry}}))
        self._models.answer_with(answer(self.world))

    async def play(self, **order: Any) -> dict[str, Any] | None:
        return await super().play(**{"target": "lead", "together": PERSONS, **order})

    @property
    def marks(self) -> list[str]:
        """Of the requests so far."""
        return [mark(request) for request in self._models.requests]

    def news(self) -> int:
        """How often the agent that uses the MCP server was told that it is another one."""
        last = [request for request in self._models.requests if request.system.startswith("SERVED")][-1]
        return sum(ANEW in str(message["content"]) for message in last.json["messages"])

    def has_used(self) -> bool:
        """Whether that agent has used the server, and has not ended, as far as is on disk."""
        rows = [row for path, row in self.rows() if path.startswith("agent_served_")]
        ended = any(isinstance(row, Told) and "SERVED" in str(row.message) for row in rows[1:])
        return not ended and any(isinstance(row, Intends) for row in rows)

    def answered(self) -> set[str]:
        """The marks of requests whose replies are on disk."""
        told = [row.message for _, row in self.rows() if isinstance(row, Told)]
        texts = [message.reply.text for message in told if isinstance(message, Replied)]
        return {found for text in texts for found in re.findall(r"#([0-9a-f]{12})$", text)}
