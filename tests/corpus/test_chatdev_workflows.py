"""ChatDev's workflows: each is checked, and run with a model that calls its tools.

They run in a copy of what they need of their checkout, since they write beside themselves. What is not here stands in:
`uvx`, which would fetch Blender's MCP server, starts one with a single tool; the server of `demo_mcp` and mem0's
service answer on loopback. `chatdev_runs.json` has what ChatDev's own engine did when the same model played the same
files (recorded by running it on 2026-11-23): which nodes ran, which tools were called, the result.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml
from corpus.chatdev_model import PERSON, Player
from corpus.strangers import WORKS, attempts, cannot, check, corpus, needs
from support.fake_mcp_http import INITIALIZED, SESSION, Legacy, Talk, fake_mcp
from support.fake_mcp_http import result as result_of
from support.fake_models import FakeModels, Reply, Request

import callboard
from callboard.protocol.problems import Problem, errors_in

PARTS = ("yaml_instance", "functions", ".agents", "utils", "entity")
TINY = Path(__file__).parents[1] / "actors" / "work" / "mcp" / "servers" / "tiny.sh"
VALUES = {"BASE_URL": "", "API_KEY": "k", "MODEL_NAME": "m", "COMMON_PROMPT": "Common.", "MEM0_API_KEY": "k"}
UNFINISHED = {
    "yaml_instance/GameDev_with_manager.yaml": "a model: the file leaves `name` and `provider` empty",
    "yaml_template/design.yaml": "values: the file lists every key with its type in place of one",
}
"""Files that their reader has to fill in; ChatDev's own engine refuses them, too."""

NO_LIST = (
    "`tooling` is a mapping where it must be a list, and names `get_webpage_content`, which no file of functions has; "
    "ChatDev's own engine refuses it, too"
)
REFUSED = {"yaml_instance/react.yaml": NO_LIST, "yaml_instance/subgraphs/react_agent.yaml": NO_LIST}

REMEMBERING = ("demo_simple_memory", "demo_improved_memory", "demo_file_memory")

TASK = "Build a small thing."
MCP = "http://127.0.0.1:8001/mcp"

RUNS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("chatdev_runs.json").read_text())
"""By file: `error`, or `order`, `called` and `final`. Nodes of a layer run side by side, so both lists are sorted."""

LONE_UNITS = {"demo_dynamic_tree", "MACNet_Node_sub"}
"""Their trees have one unit, whose node ChatDev's engine does not run: played with `compat: devall`."""

NOT_COMPARED = {
    "demo_loop_timer": "how often it goes round is a matter of time",
    "skills": "its model is told of skills in other words, and answers by its words",
}


def workflows(root: Path) -> list[str]:
    found = [*root.glob("yaml_instance/**/*.yaml"), *root.glob("yaml_template/*.yaml")]
    return sorted(str(file.relative_to(root)) for file in found)


def checked(root: Path) -> Iterator[tuple[str, str]]:
    for file in workflows(root):
        yield file, "validate"


def played(root: Path) -> Iterator[tuple[str, str]]:
    for file in workflows(root):
        if file.startswith("yaml_instance/"):
            yield file, "run"


def remembering(root: Path) -> Iterator[tuple[str, str]]:
    for name in REMEMBERING:
        yield f"yaml_instance/{name}.yaml", "remember"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_model: FakeModels) -> Path:
    """A copy of what workflows need, with the environment that they name."""
    root, place = corpus("chatdev"), tmp_path / "chatdev"
    for part in PARTS:
        shutil.copytree(root / part, place / part, ignore=shutil.ignore_patterns("__pycache__"))
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "uvx").write_text(f"#!/bin/bash\n. {TINY}\n")
    (programs / "uvx").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name, value in {**VALUES, "BASE_URL": fake_model.openai_base, "MEM0_BASE_URL": fake_model.url}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(place)
    return place


@pytest.mark.parametrize(("file", "what"), attempts("chatdev", checked, what="validate"))
async def test_its_workflows_are_valid(checkout: Path, tmp_path: Path, file: str, what: str) -> None:
    try:
        errors = errors_in(callboard.validate(corpus("chatdev") / file, config_dir=tmp_path))
    except callboard.CallboardError as error:
        errors = [Problem(severity="error", file=file, code="unreadable", message=str(error))]
    if errors and file in UNFINISHED:
        seen = needs(UNFINISHED[file])
    else:
        seen = WORKS if not errors else cannot(REFUSED.get(file) or told(errors[0].message, checkout))
    check("chatdev", file, what, seen)


@pytest.mark.parametrize(("file", "what"), attempts("chatdev", played, what="run"))
async def test_its_workflows_run_with_their_tools(
    checkout: Path, tmp_path: Path, fake_model: FakeModels, nursery: trio.Nursery, file: str, what: str
) -> None:
    text = (checkout / file).read_text(encoding="utf-8")
    if MCP in text:
        text = text.replace(MCP, (await fake_mcp(nursery, rolling_dice)).url)
    (checkout / file).write_text(here(text), encoding="utf-8")
    player = Player()
    fake_model.answer_with(lambda request: answered(player, request))
    config_dir = fake_model.config_dir(tmp_path / "config")
    compat = "devall" if Path(file).stem in LONE_UNITS else None
    try:
        outcome = await callboard.run(
            checkout / file, TASK, config_dir=config_dir, compat=compat, answers=[PERSON] * 300, yes=True
        )
    except callboard.CallboardError as error:
        check("chatdev", file, what, cannot(REFUSED.get(file) or told(str(error), tmp_path)))
        return
    why = "" if outcome.error is None else told(outcome.error.message, tmp_path)
    check("chatdev", file, what, WORKS if outcome.status == "done" else cannot(why))
    theirs = RUNS.get(file, {})
    if outcome.status == "done" and "order" in theirs and Path(file).stem not in NOT_COMPARED:
        assert sorted(outcome.order) == theirs["order"]
        assert sorted(player.called) == theirs["called"]
        assert without_places(outcome.output) == theirs["final"]


@pytest.mark.parametrize(("file", "what"), attempts("chatdev", remembering, what="remember"))
async def test_its_memories_are_there_in_the_next_run_without_any_weights(
    checkout: Path, tmp_path: Path, fake_model: FakeModels, file: str, what: str
) -> None:
    notes = checkout / "tests" / "file_memory_test"
    notes.mkdir(parents=True)
    (notes / "bicycles.md").write_text("Bicycles have two wheels.\n")
    fake_model.answer_with(
        lambda request: (
            Reply(status=404, error="no embeddings here")
            if "embeddings" in request.path
            else "Bicycles have two wheels, and stay upright by themselves while they roll."
        )
    )
    config_dir = fake_model.config_dir(tmp_path / "config")
    for task in ("Write about bicycles.", "How many wheels have bicycles?"):
        fake_model.requests.clear()
        outcome = await callboard.run(checkout / file, task, config_dir=config_dir)
        assert outcome.error is None
    asked = next(request for request in fake_model.requests if "embeddings" not in request.path)
    remembered = any("two wheels" in str(message["content"]) for message in asked.json["messages"])
    check("chatdev", file, what, WORKS if remembered else cannot("what was said before is not remembered"))


def here(text: str) -> str:
    """The workflow with all models where `BASE_URL` is: some files leave them open, some name Google's own.

    Its timers are short, since a scripted model goes round a hundred times in a minute.
    """
    workflow = yaml.safe_load(text)
    for node in workflow["graph"]["nodes"]:
        if node["type"] == "agent":
            config = node["config"]
            config["name"], config["provider"] = config["name"] or "m", config["provider"] or "openai"
            config["base_url"], config["api_key"] = "${BASE_URL}", "${API_KEY}"
        if node["type"] == "loop_timer":
            node["config"]["max_duration"] = 0.01
    return yaml.safe_dump(workflow, sort_keys=False, allow_unicode=True)


def without_places(text: str) -> str:
    return re.sub(r"/\S*/", "", text)


def told(message: str, place: Path) -> str:
    """The first line of a message, without the places of this run."""
    return message.strip().partition("\n")[0].replace(str(place), "")[:200]


async def rolling_dice(request: Request, talk: Talk) -> None:
    """The server of `demo_mcp`."""
    tool = {"name": "rand_num", "inputSchema": {"type": "object", "properties": {"a": {}, "b": {}}}}
    answers: dict[str, Any] = {
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "4"}]},
    }

    async def answer(asked: Request, line: Talk) -> None:
        method = asked.json.get("method", "")
        if method in answers:
            await line.json(result_of(asked, answers[method]))
        else:
            await line.accepted()

    if request.json.get("method") == "initialize":
        has_tools = {**INITIALIZED, "capabilities": {"tools": {}}}
        await talk.json(result_of(request, has_tools), mcp_session_id=SESSION)
    else:
        await Legacy(answer)(request, talk)


# --- the model --------------------------------------------------------------------------------------------


def answered(player: Player, request: Request) -> Reply | str:
    """What the model, its embeddings or mem0's service answer."""
    if "memories" in request.path:
        return Reply(raw=b"[]")
    if "embeddings" in request.path:
        return Reply(status=404, error="no embeddings here")
    gemini = ":generateContent" in request.path or ":streamGenerateContent" in request.path
    said = player.says(*(gemini_asks(request) if gemini else openai_asks(request)))
    if not gemini:
        return said if isinstance(said, str) else Reply(calls=said)
    return Reply(raw=gemini_says(said, streamed=":stream" in request.path))


def openai_asks(request: Request) -> tuple[str, list[str], int]:
    results = 0
    for message in reversed(request.json["messages"]):
        if message["role"] != "tool" and not shows(message):
            break
        results += 1
    return request.system, request.offered, results


def shows(message: dict[str, Any]) -> bool:
    """Whether a user's message only shows what results of tools hold beside text."""
    content = message["content"]
    return message["role"] == "user" and isinstance(content, list) and content[0].get("text", "").startswith("What ")


def gemini_asks(request: Request) -> tuple[str, list[str], int]:
    asked = request.json
    system = "\n".join(part["text"] for part in asked.get("systemInstruction", {}).get("parts", []))
    offered = [each["name"] for tools in asked.get("tools", []) for each in tools.get("functionDeclarations", [])]
    last = asked["contents"][-1]["parts"]
    return system, offered, sum("functionResponse" in part for part in last)


def gemini_says(said: Any, *, streamed: bool) -> bytes:
    parts = (
        [{"text": said}]
        if isinstance(said, str)
        else [{"functionCall": {"name": name, "args": arguments}} for name, arguments in said]
    )
    found = {"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}]}
    data = json.dumps(found).encode()
    return b"data: " + data + b"\r\n\r\n" if streamed else data
