"""Agents whose models are functions of the results of their calls, and a program that executes and kills them.

    def boss(said, prompt):
        if not said.calls:
            return [("agent__spawn", {"agent": "leaf", "prompt": "x"})]
        ...
        return "the end"

What a model says depends on the request alone. Each reply bears a mark of its request, by which one that was asked for
again is told. `execute_command` with the name of an effect as command does that effect (see `everything.DO`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio
from everything import DO, KilledRun
from support.fake_models import FakeModels, Reply, Request

from callboard.protocol.journal import MessageRow
from callboard.protocol.messages import Replied

Call = tuple[str, dict[str, Any]]

HANGS: Call = ("hang", {})
"""In place of calls: the model never answers."""


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


Play = Callable[[Said, str], list[Call] | str]


class Played:
    """An agent: its model, and what its file says."""

    def __init__(self, play: Play, **config: Any) -> None:
        self.play = play
        self.config = config


class KilledAgents(KilledRun):
    """Where agents are played."""

    def __init__(self, home: Path, models: FakeModels, agents: dict[str, Played], **order: Any) -> None:
        self._agents = agents
        self._order = order
        super().__init__(home, models)

    def write(self, config: Path) -> None:
        for name, agent in self._agents.items():
            home = config / "agents" / name
            home.mkdir(parents=True)
            text = {"name": name, "instructions": f"AGENT {name}.", "global_tools": ["execute_command"], **agent.config}
            (home / "config.yaml").write_text(json.dumps(text))
        self._models.answer_with(self._say)

    async def play(self, **order: Any) -> dict[str, Any] | None:
        return await super().play(**{"target": next(iter(self._agents)), **self._order, **order})

    def _say(self, request: Request) -> Reply:
        match = re.match(r"AGENT (\w+)", request.system)
        assert match is not None
        prompt = next(m["content"] for m in request.json["messages"] if m["role"] == "user")
        said = Said(request)
        says = self._agents[match[1]].play(said, prompt)
        if isinstance(says, str):
            return Reply(text=f"{says} #{mark(request)}")
        if says == [HANGS]:
            return Reply(hold=trio.Event())
        begins = "" if said.calls or prompt == "hello" else f"{prompt.split()[0].lower()} begins"
        calls = [
            (name, {"command": DO.format(name=given["command"], world=self.world)} if "command" in given else given)
            for name, given in says
        ]
        waits = 0.05 if calls[0][0] == "agent__task_list" else 0.0
        return Reply(text=f"{begins} #{mark(request)}", calls=calls, delay=waits)

    @property
    def marks(self) -> list[str]:
        """Of the requests so far."""
        return [mark(request) for request in self._models.requests]

    def answered(self) -> set[str]:
        """The marks of requests whose replies are on disk."""
        told = [row.message for _, row in self.rows() if isinstance(row, MessageRow)]
        texts = [message.reply.text for message in told if isinstance(message, Replied)]
        return {found for text in texts for found in re.findall(r"#([0-9a-f]{12})$", text)}


def mark(request: Request) -> str:
    """What tells a request from others."""
    return hashlib.sha256(json.dumps(request.json["messages"]).encode()).hexdigest()[:12]


def plain(text: str) -> str:
    """Without the marks of requests, and what was said with calls alone; whose time is up has perhaps said nothing."""
    text = re.sub(r"\s*\n\s*", " / ", re.sub(r" ?#[0-9a-f]{12}|timed begins", "", text)).strip(" /")
    return text.replace(" ]", "]")


def children(found: list[dict[str, Any]]) -> list[Any]:
    """What an outcome says of children, as far as it is the same however often the run was killed."""
    told = [[each["agent"], each["status"], plain(each["output"]), children(each["children"])] for each in found]
    return sorted(told, key=repr)
