"""ChatDev's function tools: each is called by a scripted model, in its checkout and away from it.

What is told is compared with what ChatDev's own engine said to the same call. Away from the checkout, only the
directory `functions` stands beside the workflow, so that its modules `entity` and `utils` are Callboard's stand-ins.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from corpus.chatdev_calls import ANSWER, CALLS, NOTES
from corpus.strangers import WORKS, Seen, attempts, cannot, check, corpus, needs
from support.fake_models import Reply
from support.workflow_agents import Agents

PLACE = "functions/function_calling"

WORKFLOW = """
graph:
  start: [A]
  nodes:
    - id: A
      type: agent
      config:
        {fake}
        name: m
        tooling: [{type: function, config: {tools: [TOOLS]}}]
"""


def functions_of(root: Path) -> Iterator[tuple[str, str]]:
    """Every public function, in the checkout and alone."""
    for file in sorted((root / PLACE).glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield f"{PLACE}/{file.name}", f"call {node.name}"
                yield f"{PLACE}/{file.name}", f"call {node.name} alone"


@pytest.mark.parametrize(("file", "what"), attempts("chatdev", functions_of, what="call"))
async def test_its_function_tools_do_what_its_own_engine_has_them_do(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: str, what: str
) -> None:
    root = corpus("chatdev")
    if what.endswith(" alone"):
        shutil.copytree(root / PLACE, agents.home / PLACE, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        monkeypatch.setenv("MAC_FUNCTIONS_DIR", str(root / PLACE))
    check("chatdev", file, what, await called(agents, tmp_path, Path(file).stem, what.split()[1]))


async def called(agents: Agents, tmp_path: Path, module: str, function: str) -> Seen:
    """What came of a call."""
    wanted = CALLS[module][function]
    workspace = tmp_path / "workspace"
    (workspace / "sub").mkdir(parents=True)
    (workspace / "notes.txt").write_text(NOTES)
    (workspace / "sub" / "deep.txt").write_text("deep beta")
    (workspace / "scene.py").write_text("class Scene: ...\n")
    arguments = {
        name: value.replace("<workspace>", str(workspace)) if isinstance(value, str) else value
        for name, value in wanted.arguments.items()
    }
    calls = [*wanted.before, (function, arguments)]
    agents.models.script(*(Reply(calls=[call]) for call in calls), "done")
    names = ", ".join(f"{{name: {name}}}" for name in dict.fromkeys(name for name, _ in calls))
    fake = f"provider: openai\n        base_url: '{agents.models.openai_base}'\n        api_key: k"
    workflow = WORKFLOW.replace("{fake}", fake).replace("TOOLS", names)
    result = await agents.run(workflow, answers=[ANSWER], workspace=workspace)
    assert (result.error, result.output) == (None, "done")
    told = agents.models.requests[-1].results[-1].replace(str(workspace), "<workspace>")
    if wanted.needs and any(missing in told for missing in wanted.missing):
        return needs(wanted.needs)
    lacking = [text for text in wanted.told if text not in told]
    return WORKS if not lacking and "tool_call_error" not in told else cannot(f"{lacking} are not in {told[-1000:]}")
