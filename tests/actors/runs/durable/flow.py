"""A workflow with all that can go on after a kill, its functions, a model for it, and the files that it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from everything import KilledRun
from support.fake_models import FakeModels, Reply, Request

FLOW = """
graph:
  id: all
  start: [Attach]
  end: [End]
  memory: [{name: board, type: blackboard, config: {}}]
  nodes:
    - {id: Attach, type: python, config: {code: CODE_ATTACH}}
    - id: Lead
      type: agent
      config:
        provider: fake
        name: m
        role: LEAD
        memories: [{name: board, read: true, write: true}]
        thinking: {type: reflection, config: {reflection_prompt: THINK}}
        tooling: [{type: function, config: {tools: [{name: make_file}, {name: call_user}]}}]
    - {id: Boss, type: human, config: {description: "Well?"}}
    - {id: Step, type: python, config: {code: CODE_STEP}}
    - {id: Back, type: passthrough, config: {}}
    - {id: Gate, type: loop_counter, config: {max_iterations: 2, message: enough}}
    - id: Team
      type: subgraph
      config:
        type: config
        config:
          start: [Writer]
          end: [Note]
          nodes:
            - {id: Writer, type: agent, config: {provider: fake, name: m, role: WRITER}}
            - {id: Critic, type: human, config: {}}
            - {id: Note, type: python, config: {code: CODE_NOTE}}
          edges: [{from: Writer, to: Critic}, {from: Critic, to: Note}]
    - {id: Items, type: literal, config: {content: "1\\n2\\n3"}}
    - {id: Each, type: agent, config: {provider: fake, name: m, role: "EACH {{item}}"}}
    - {id: Deep, type: subgraph, config: {type: file, config: {path: deep.yaml}}}
    - {id: Sum, type: agent, config: {provider: fake, name: m, role: SUM}}
    - {id: Helper, type: agent, config: {provider: callboard, name: helper}}
    - id: Last
      type: agent
      config: {provider: fake, name: m, role: LAST, memories: [{name: board, read: true, write: true}]}
    - {id: End, type: python, config: {code: CODE_END}}
  edges:
    - {from: Attach, to: Lead, condition: {type: function, config: {name: is_ready}}}
    - {from: Lead, to: Boss, process: {type: function, config: {name: numbered}}}
    - {from: Boss, to: Step}
    - {from: Step, to: Back}
    - {from: Step, to: Gate}
    - {from: Back, to: Step}
    - {from: Gate, to: Step, trigger: false, carry_data: false}
    - {from: Gate, to: Team, process: {type: function, config: {name: numbered}}}
    - {from: Team, to: Items}
    - {from: Items, to: Each, dynamic: {type: map, config: {split_type: lines, max_parallel: 2}}}
    - {from: Items, to: Deep, dynamic: {type: map, config: {split_type: lines, max_parallel: 2}}}
    - {from: Each, to: Sum, dynamic: {type: tree, config: {group_size: 2}}}
    - {from: Deep, to: Sum, dynamic: {type: tree, config: {group_size: 2}}}
    - {from: Sum, to: Helper}
    - {from: Helper, to: Last}
    - {from: Last, to: End}
"""

DEEP = """
graph:
  start: [Low]
  nodes:
    - {id: Low, type: agent, config: {provider: fake, name: m, role: LOW}}
    - {id: Code, type: python, config: {code: CODE_DEEP}}
  edges: [{from: Low, to: Code, process: {type: function, config: {name: numbered}}}]
"""

WORLD = """
import os, time

def effect(name):
    with open({world!r}, "a") as file:
        file.write(name + "\\n")
    kill = {world!r} + ".kill"
    if os.path.exists(kill) and open(kill).read() == name:
        os.unlink(kill)
        os.kill(int(os.environ["HOST"]), 9)
        time.sleep(10)
"""
"""An effect, which kills the program in the midst of it if it is told so."""

CODES = {
    "CODE_ATTACH": """
effect("attach")
text = open("attachments/note.txt").read()
open("made.txt", "w").write("made of " + text)
print("read " + text)
""",
    "CODE_STEP": """
import os
number = 1 + len([name for name in os.listdir() if name.startswith("step-")])
effect(f"step-{number}")
open(f"step-{number}", "w").write(__file__.rsplit("/")[-1])
print("step", number)
""",
    "CODE_NOTE": """
effect("note")
open("note.txt", "w").write("noted")
print("noted")
""",
    "CODE_DEEP": """
effect("deep")
print("deep")
""",
    "CODE_END": """
import os
effect("end")
names = sorted(name for name in os.listdir() if os.path.isfile(name) and not name.startswith("Code"))
print("|".join(name if name.endswith(".py") else name + "=" + open(name).read() for name in names))
""",
}

TOOLS = """
def make_file(name: str, _context: dict) -> str:
    effect("make_file")
    place = _context["python_workspace_root"] / name
    place.write_text("by a tool")
    return f"made {name} as {_context['node_id']}"

def call_user(instruction: str, _context: dict) -> str:
    reply = _context["human_prompt"].request("asked", instruction)
    return "the user says " + reply.text
"""

CONDITIONS = """
def is_ready(text):
    effect("is_ready")
    return "read" in text
"""

PROCESSORS = """
def numbered(text, context):
    context["count"] = context.get("count", 0) + 1
    effect(f"numbered-{context['count']}")
    (context["python_workspace_root"] / f"numbered-{context['count']}").write_text("x")
    return {"content": f"{text} ({context['count']})", "metadata": {"count": context["count"]}}
"""

HELPER = """
name: helper
instructions: HELPER
global_tools: [execute_command]
"""

EFFECTS = {
    "attach": 1,
    "is_ready": 1,
    "make_file": 1,
    **{f"numbered-{number}": 1 for number in range(1, 6)},
    "step-1": 1,
    "step-2": 1,
    "note": 1,
    "deep": 3,
    "helper": 1,
    "end": 1,
}
"""How often each is done to the world by the whole run."""

ANSWERS = {"asked": "tea", "Boss": "go on", "Critic": "good"}
"""What the person says to questions, by who asks."""

CALLS = {"make_file", "helper"}
"""Effects that a model has called for."""


def answer(world: Path, helper: str = "helper") -> Any:
    """The model: what it says depends on the request alone; `helper` is the effect of that agent."""

    def say(request: Request) -> Reply:
        system, results, prompt = request.system, request.results, request.prompt
        if system == "LEAD":
            if not results:
                return Reply(calls=[("make_file", {"name": "tool.txt"}), ("call_user", {"instruction": "Tea?"})])
            said = "tea" if "tea" in json.dumps(results) else "nothing"
            return Reply(text=f"lead has {said}")
        if "HELPER" in system:
            command = {"command": f"echo {helper} >> {world}; {KILL.format(world=world, name=helper)}"}
            return Reply(text="helped") if results else Reply(calls=[("execute_command", command)])
        if "THINK" in prompt:
            return Reply(text="second thought of " + prompt.split("ASSISTANT: ")[-1].removesuffix(" THINK"))
        if system == "LAST":
            return Reply(
                text="board: " + prompt.count("x") * "x" + request.body.decode().split("1. ")[1].split("\\n")[0]
            )
        if system == "SUM":
            return Reply(text="+".join(prompt.split("\n")))
        return Reply(text=f"<{system} {prompt[-20:]}>")

    return say


KILL = 'if [ "$(cat {world}.kill 2>/dev/null)" = {name} ]; then rm {world}.kill; kill -9 $HOST; sleep 10; fi'


def write(place: Path, world: Path, *, flow: str = FLOW, attached: bool = True) -> None:
    """The workflow with its functions; without attachments for one that is an agent of another."""
    told = WORLD.format(world=str(world))
    codes = dict(CODES)
    if not attached:
        codes["CODE_ATTACH"] = codes["CODE_ATTACH"].replace('open("attachments/note.txt").read()', '"a note"')
    place.mkdir()
    for file, text in (("flow.yaml", flow), ("deep.yaml", DEEP)):
        for name, code in codes.items():
            text = text.replace(name, json.dumps(told + code))
        (place / file).write_text(text)
    for kind, code in (("edge", CONDITIONS), ("edge_processor", PROCESSORS), ("function_calling", TOOLS)):
        directory = place / "functions" / kind
        directory.mkdir(parents=True)
        (directory / "ours.py").write_text(told + code)


class KilledWorkflow(KilledRun):
    """Where the workflow is played."""

    def __init__(self, home: Path, models: FakeModels) -> None:
        super().__init__(home, models)
        write(home / "flow", self.world)
        self.note = home / "note.txt"
        self.note.write_text("a note")
        helper = self.config / "agents" / "helper"
        (helper / "config.yaml").write_text(HELPER)
        self.flow = home / "flow" / "flow.yaml"
        models.answer_with(answer(self.world))

    async def play(self, **order: Any) -> dict[str, Any] | None:
        options = {"attach": [str(self.note)]}
        return await super().play(**{"target": str(self.flow), "options": options, "answers": ANSWERS, **order})

    def directories(self) -> list[Path]:
        """What runs have beside their rows."""
        place = self._state / "callboard" / "durable"
        return list(place.iterdir()) if place.exists() else []

    def left_beside(self) -> list[str]:
        """The names of the files in these."""
        return [file.name for place in self.directories() for file in place.rglob("*") if file.is_file()]

    @staticmethod
    def what(effect: str) -> str:
        """What the row says of a call that is about to be made."""
        return "execute_command" if effect == "helper" else effect
