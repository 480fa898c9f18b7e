"""The built-in coder on a small broken repository, end to end: real tools, real builds, a scripted model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import has_message

from callboard.actors.work.library import AGENTS

CODER = AGENTS / "coder"
WISH = "The total of a basket ignores how many pieces there are. Mend it."

FORGETS_A_BRACKET = """\
@@ -16,3 +16,3 @@
     def total(self):
         \"\"\"Cents of everything in it.\"\"\"
-        return sum(price(article) for article in self.articles)
+        return sum(price(article) * count for article, count in self.articles.items()
"""
CLOSES_IT = """\
@@ -18 +18 @@
-        return sum(price(article) * count for article, count in self.articles.items()
+        return sum(price(article) * count for article, count in self.articles.items())
"""
ADDS_UP = """\
@@ -12,3 +12,3 @@
     def put(self, article, count=1):
         \"\"\"Put some of an article in.\"\"\"
-        self.articles[article] = count
+        self.articles[article] = self.articles.get(article, 0) + count
"""


def plan(score: int, basket: Path) -> str:
    return json.dumps(
        {
            "plan_summary": "Multiply by the count, and add up.",
            "files_to_modify": [str(basket)],
            "files_to_create": [],
            "complexity_score": score,
            "risks": ["rounding"],
        }
    )


def tools(request: Request) -> set[str]:
    """Names of the tools that a request offers."""
    return {tool["function"]["name"] for tool in request.json.get("tools", ())}


def results(request: Request) -> list[str]:
    """What the tool calls so far came to, as the model is told."""
    return [message["content"] for message in request.json["messages"] if message["role"] == "tool"]


def patched(path: Path, diff: str) -> Reply:
    return Reply(calls=[("fs_patch", {"path": str(path), "contents": diff})])


def passes(project: Path) -> bool:
    argv = ["python3", "-m", "unittest", "discover", "-s", "tests", "-t", "."]
    return subprocess.run(argv, cwd=project, capture_output=True).returncode == 0


async def test_coder_repairs_a_broken_repository(agent_runner: AgentRunner, shop: Path) -> None:
    basket = shop / "shop" / "basket.py"
    assert not passes(shop)
    agent_runner.models.script(
        Reply(calls=[("fs_grep", {"pattern": "def total"}), ("fs_glob", {"pattern": "test_*.py"})]),
        plan(8, basket),
        Reply(calls=[("fs_read", {"path": str(basket)})]),
        patched(basket, FORGETS_A_BRACKET),
        "total() multiplies now.",
        patched(basket, CLOSES_IT),
        "The bracket is closed.",
        patched(basket, ADDS_UP),
        "put() adds up now.",
    )
    outcome = await agent_runner.run(WISH, target=CODER, answers={"gate_approval": "yes"})
    assert outcome.status == "done", outcome.error
    assert outcome.output.splitlines() == [
        "CODER_COMPLETE",
        "Multiply by the count, and add up.",
        'Changed: ["shop/basket.py"]',
        "Build: passed",
        "Tests: passed: unittest: 3 passed (2 failed before the change)",
        "",
        "The model says: put() adds up now.",
    ]
    assert passes(shop)
    assert outcome.order == [
        *("resolve_paths", "analyze_request", "route_complexity", "gate_approval", "measure"),
        *("implement", "verify_build", "fix_loop_gate"),
        *("implement", "verify_build", "verify_tests", "fix_loop_gate"),
        *("implement", "verify_build", "verify_tests", "end_success"),
    ]
    assert agent_runner.models.unused == 0
    agent_runner.check_stream()
    _check_what_was_said(agent_runner, shop)


def _check_what_was_said(agent_runner: AgentRunner, shop: Path) -> None:
    look, planned, _read, patch, _, mend, _, again, _ = agent_runner.models.requests
    # Who plans can only look; who works can write.
    assert tools(look) == {"fs_ls", "fs_glob", "fs_grep", "fs_read"}
    assert tools(patch) == tools(look) | {"fs_cat", "fs_write", "fs_edit", "fs_patch", "execute_command"}
    found, names = results(planned)
    assert "shop/basket.py:16:" in found
    assert "tests/test_basket.py" in names
    assert "return sum(price(article)" in results(patch)[0]
    # Each try begins anew, with the log of what failed.
    assert results(mend) == results(again) == []
    assert "Try 1 of 3: the build fails" in mend.prompt
    assert "SyntaxError: '(' was never closed" in mend.prompt
    assert "Try 2 of 3: tests failed: unittest: 1 of 3 tests fail (1 of them failed before the change)" in again.prompt
    assert "FAIL: test_the_same_article_can_be_put_in_twice" in again.prompt
    assert [data.error for data in agent_runner.of("tool.call.finished") if data.error] == []
    (asked,) = agent_runner.of("question.asked")
    assert asked.question["text"].startswith("Multiply by the count, and add up.\n\nChanges:")


@pytest.mark.parametrize("answer", ["no", "not on a Sunday"])
async def test_coder_changes_nothing_when_its_plan_is_turned_down(
    agent_runner: AgentRunner, shop: Path, answer: str
) -> None:
    basket = shop / "shop" / "basket.py"
    before = basket.read_text()
    agent_runner.models.script(plan(7, basket))
    outcome = await agent_runner.run(WISH, target=CODER, answers={"gate_approval": answer})
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    assert outcome.output.splitlines() == [
        "CODER_REJECTED",
        "The plan was turned down: Multiply by the count, and add up.",
    ]
    assert basket.read_text() == before
    assert len(agent_runner.models.requests) == 1


async def test_coder_says_what_stood_in_the_way_when_its_tries_are_used_up(
    agent_runner: AgentRunner, shop: Path
) -> None:
    basket = shop / "shop" / "basket.py"
    agent_runner.models.script(plan(2, basket))

    def answer(request: Request) -> Reply | str:
        if results(request):
            return "That should do."
        return Reply(calls=[("fs_write", {"path": str(basket), "contents": "def total(:\n"})])

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run(WISH, target=CODER, state={"max_fix_attempts": 1})
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    lines = outcome.output.splitlines()
    assert lines[0] == "CODER_FAILED"
    assert "Reason: the build fails" in lines
    assert "Tries: 1 of 1" in lines
    assert "The model says, and it does not hold: That should do." in lines
    assert "SyntaxError" in outcome.output
    assert outcome.nodes["implement"].visits == 2
    assert "gate_approval" not in outcome.nodes


@pytest.mark.parametrize("agent_runner", [{}], indirect=True)
async def test_coder_writes_nothing_without_leave(agent_runner: AgentRunner, shop: Path) -> None:
    basket = shop / "shop" / "basket.py"
    before = basket.read_text()
    told: list[str] = []

    def answer(request: Request) -> Reply | str:
        told.extend(results(request))
        return "I may not write." if results(request) else patched(basket, ADDS_UP)

    agent_runner.models.script(plan(2, basket))
    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run(WISH, target=CODER, state={"max_fix_attempts": 0})
    assert outcome.output.startswith("CODER_FAILED\n")
    assert "Reason: no file was changed" in outcome.output
    assert basket.read_text() == before
    assert has_message(told[0], "work.tools.permissions.Permissions._ask", name="fs_patch")


async def test_coder_takes_the_project_and_the_commands_that_it_is_given(
    agent_runner: AgentRunner, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.parent)
    for name, value in {"BUILD_CMD": "test -f pyproject.toml", "TEST_CMD": "", "CODER_AUTOAPPROVE": "1"}.items():
        monkeypatch.setenv(name, value)
    basket = shop / "shop" / "basket.py"
    agent_runner.models.script(plan(9, basket), patched(basket, ADDS_UP), "All tests pass.")
    outcome = await agent_runner.run(WISH, target=CODER, variables={"project_dir": "shop"})
    assert outcome.output.startswith("CODER_UNVERIFIED\n"), outcome.output
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    assert outcome.error is not None
    assert outcome.error.message == "the change is made, but not verified: not tested: TEST_CMD is empty"
    assert f"the project in {shop.resolve()}" in agent_runner.models.requests[1].json["messages"][0]["content"]
    assert "Tests: not tested: TEST_CMD is empty\n" in outcome.output
