"""What functions of agent nodes find in their process: DevAll's modules, its `_context`, and a person to ask."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from support.fake_models import Reply
from support.workflow_agents import Agents, said

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

WORKFLOW = """
vars: {LANGUAGE: English, MOST: 3}
graph:
  start: [Clerk]
  nodes:
    - id: Clerk
      type: agent
      config: {FAKE, name: m, tooling: [{type: function, config: {tools: [TOOLS]}}]}
"""


@pytest.fixture
def functions(agents: Agents) -> Path:
    directory = agents.home / "functions" / "function_calling"
    directory.mkdir(parents=True)
    return directory


async def told(agents: Agents, tool: str, more: Any = None, **arguments: Any) -> str:
    """What the model is told of one call."""
    agents.models.script(Reply(calls=[(tool.split(":")[0], arguments)]), "done")
    workflow = WORKFLOW.replace("TOOLS", f"{{name: '{tool}'}}").replace("FAKE", "{fake}")
    result = await agents.run(workflow, **(more or {}))
    assert (result.error, result.output) == (None, "done")
    return str(agents.models.requests[-1].results[-1])


async def test_a_function_is_given_the_workspace_the_variables_and_who_calls(
    agents: Agents, functions: Path, tmp_path: Path
) -> None:
    (functions / "own.py").write_text("""
def look(_context: dict) -> dict:
    root = _context["python_workspace_root"]
    (root / "made.txt").write_text("x")
    found = {name: _context[name] for name in ("vars", "node_id", "session_id", "graph_directory")}
    return {**found, "root": root, "attachments": _context["attachment_store"].root}
""")
    place = tmp_path / "place"
    text = await told(agents, "look", {"workspace": place})
    assert text == (
        f'{{"vars": {{"LANGUAGE": "English", "MOST": 3}}, "node_id": "Clerk", "session_id": "run-1", '
        f'"graph_directory": "{place}", "root": "{place}", "attachments": "{place}/attachments"}}'
    )
    assert (place / "made.txt").read_text() == "x"
    (offered,) = agents.models.requests[0].json["tools"]
    assert offered["function"]["parameters"]["properties"] == {}


async def test_a_function_that_takes_any_arguments_is_given_the_context_among_them(
    agents: Agents, functions: Path
) -> None:
    (functions / "own.py").write_text("def any_of(word, *more, **others):\n    return f'{word} {sorted(others)}'\n")
    assert await told(agents, "any_of", word="hi") == "hi ['_context']"


async def test_what_an_annotation_does_not_say_is_a_text(agents: Agents, functions: Path) -> None:
    (functions / "own.py").write_text("""
class Deep: ...
class Context: ...

def look(what: Deep, how: "Deep | None" = None, _context: Context = None):
    return f"{what} {how} {sorted(_context)[0]}"
""")
    assert await told(agents, "look", what="x") == "x None attachment_store"
    parameters = agents.models.requests[0].json["tools"][0]["function"]["parameters"]
    assert parameters["properties"]["what"] == {"type": "string"}
    assert parameters["required"] == ["what"]


async def test_a_file_called_utils_is_not_the_package_utils(agents: Agents, functions: Path) -> None:
    (functions / "utils.py").write_text("def helper():\n    return 'helped'\n")
    (functions / "beside.py").write_text("WORD = 'beside'\n")
    (functions / "own.py").write_text("""
from typing import Annotated
from beside import WORD
from entity.messages import MessageBlock, MessageBlockType
from functions.function_calling.utils import helper
from utils.attachments import AttachmentStore
from utils.function_catalog import ParamMeta
from utils.workspace_scanner import iter_workspace_entries

def look(what: Annotated[str, ParamMeta(description="What for")], _context=None):
    assert isinstance(_context["attachment_store"], AttachmentStore)
    return f"{WORD} {helper()} {[each.path for each in iter_workspace_entries(_context['python_workspace_root'])]}"
""")
    assert await told(agents, "look", what="x") == "beside helped ['attachments']"
    (offered,) = agents.models.requests[0].json["tools"]
    assert offered["function"]["parameters"]["properties"]["what"]["description"] == "What for"
    assert await told(agents, "helper") == "helped"


async def test_modules_of_a_checkout_come_before_the_stand_ins(agents: Agents, functions: Path) -> None:
    (agents.home / "utils").mkdir()
    (agents.home / "utils" / "__init__.py").write_text("")
    (agents.home / "utils" / "function_catalog.py").write_text("ParamMeta = 'the checkout'\n")
    (functions / "own.py").write_text("""
from utils.function_catalog import ParamMeta
from utils.attachments import AttachmentStore

def look(_context=None):
    return f"{ParamMeta} {type(_context['attachment_store']) is AttachmentStore}"
""")
    assert await told(agents, "look") == "the checkout True"


ASKING = """
def ask(question: str, _context=None):
    try:
        return _context["human_prompt"].request(_context["node_id"], "Please answer.", inputs=question).text
    except EOFError as error:
        return f"no answer: {error}"
"""


async def test_a_function_asks_the_person_of_the_run(agents: Agents, functions: Path) -> None:
    (functions / "own.py").write_text(ASKING)
    assert await told(agents, "ask", {"answers": {"Clerk": ["tea"]}}, question="Tea?") == "tea"
    (asked,) = agents.of("question.asked")
    assert (asked.question["node"], asked.question["text"]) == ("Clerk", "Please answer.\n\nTea?")


async def test_a_function_without_anybody_to_ask_learns_that(agents: Agents, functions: Path) -> None:
    (functions / "own.py").write_text(ASKING)
    assert (await told(agents, "ask", question="Tea?")).startswith("no answer: ")


SHOWING = """
from pathlib import Path
from entity.messages import Message, MessageBlock, MessageBlockType, MessageRole

def show(name: str, _context=None):
    store = _context["attachment_store"]
    file = _context["python_workspace_root"] / name
    kind = MessageBlockType.IMAGE if name.endswith(".png") else MessageBlockType.FILE
    return [MessageBlock.text_block("Look:"), store.register_file(file, kind=kind, copy_file=False).as_message_block()]

def say(_context=None):
    return Message(role=MessageRole.ASSISTANT, content="plain")
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    place = tmp_path / "place"
    place.mkdir()
    (place / "dot.png").write_bytes(PNG)
    (place / "notes.md").write_text("# Notes\n")
    (place / "blob.bin").write_bytes(b"\0\1\2")
    return place


async def test_an_image_that_a_function_returns_is_seen_by_the_model(
    agents: Agents, functions: Path, place: Path
) -> None:
    (functions / "own.py").write_text(SHOWING)
    assert await told(agents, "show", {"workspace": place}, name="dot.png") == "Look:\n[image, image/png: see below]"
    role, content = said(agents.models.requests[-1])[-1]
    assert role == "user"
    assert [part["type"] for part in content] == ["text", "image_url"]
    assert content[1]["image_url"]["url"] == "data:image/png;base64," + base64.b64encode(PNG).decode()


async def test_an_image_that_is_in_no_file_is_seen_and_leaves_no_file_behind(
    agents: Agents, functions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (functions / "own.py").write_text(f"""
from entity.messages import AttachmentRef, MessageBlock, MessageBlockType

def draw():
    uri = "data:image/png;base64,{base64.b64encode(PNG).decode()}"
    ref = AttachmentRef(attachment_id="a", mime_type="image/png", name="dot.png", data_uri=uri)
    return [MessageBlock(type=MessageBlockType.IMAGE, attachment=ref)]
""")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    assert await told(agents, "draw", {"workspace": tmp_path / "place"}) == "[image, image/png: see below]"
    assert said(agents.models.requests[-1])[-1][1][1]["type"] == "image_url"
    assert list(temporary.glob("*/*")) == []


async def test_a_text_file_that_a_function_returns_is_read_and_another_is_named(
    agents: Agents, functions: Path, place: Path
) -> None:
    (functions / "own.py").write_text(SHOWING)
    text = await told(agents, "show", {"workspace": place}, name="notes.md")
    assert text == 'Look:\n<file name="notes.md">\n# Notes\n\n</file>'
    text = await told(agents, "show", {"workspace": place}, name="blob.bin")
    assert text == "Look:\n[file: blob.bin, application/octet-stream, 3 bytes]"
    assert await told(agents, "say") == "plain"


async def test_functions_in_directories_below_are_found_and_hidden_files_are_not(
    agents: Agents, functions: Path
) -> None:
    (functions / "deep").mkdir()
    (functions / "deep" / "well.py").write_text("def draw():\n    return 'water'\n")
    (functions / "_draft.py").write_text("def draw():\n    return 'nothing'\n")
    assert await told(agents, "draw") == "water"
    agents.models.script("done")
    await agents.run(WORKFLOW.replace("TOOLS", "{name: 'deep/well:All'}").replace("FAKE", "{fake}"))
    assert [tool["function"]["name"] for tool in agents.models.requests[-1].json["tools"]] == ["draw"]
