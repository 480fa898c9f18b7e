"""The built-in LLM agents at work with a scripted model: what they are offered, and what their own tools do."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request

from callboard.actors.work.library import AGENTS


def system(request: Request) -> str:
    """The system prompt of a request."""
    return str(request.json["messages"][0]["content"])


def tools(request: Request) -> set[str]:
    """Names of the tools that a request offers, without the families that every agent may have."""
    return {tool["function"]["name"] for tool in request.json.get("tools", ()) if "__" not in tool["function"]["name"]}


def results(request: Request) -> list[str]:
    """What the tool calls so far came to, as the model is told."""
    return [message["content"] for message in request.json["messages"] if message["role"] == "tool"]


@pytest.fixture
def repository(shop: Path) -> Path:
    """The shop under git, with one file changed, one new and one that belongs to nobody's review."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@x", *arguments], check=True, cwd=shop)

    (shop / ".gitignore").write_text("__pycache__/\n")
    git("init", "--quiet", "--initial-branch=main")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    prices = shop / "shop" / "prices.py"
    prices.write_text(prices.read_text().replace("return PRICES[article]", "return PRICES.get(article)"))
    (shop / "shop" / "new *.py").write_text("import os\n")
    return shop


async def test_report_writer_has_no_tool_and_gets_everything_in_one_request(agent_runner: AgentRunner) -> None:
    agent_runner.models.script("# Report")
    outcome = await agent_runner.run("Topic: tea. Findings: it is hot (https://x.y).", target=AGENTS / "report-writer")
    assert outcome.output == "# Report"
    (request,) = agent_runner.models.requests
    assert tools(request) == set()
    assert "same URL" in system(request)
    assert request.json["temperature"] == 0.2


async def test_explore_looks_without_asking_anybody(agent_runner: AgentRunner, shop: Path) -> None:
    agent_runner.models.script(
        Reply(calls=[("fs_grep", {"pattern": "price"}), ("fs_ls", {}), ("fs_read", {"path": "shop/prices.py"})]),
        "`shop/prices.py:6`",
    )
    outcome = await agent_runner.run("Where do prices come from?", target=AGENTS / "explore")
    assert outcome.output == "`shop/prices.py:6`"
    first, second = agent_runner.models.requests
    assert tools(first) == {"fs_glob", "fs_grep", "fs_ls", "fs_read"}
    assert str(shop) in system(first)
    grepped, listed, read = results(second)
    assert "shop/basket.py:3:" in grepped
    assert "pyproject.toml" in listed
    assert "PRICES" in read
    assert agent_runner.of("question.asked") == []


async def test_oracle_reads_and_searches_and_has_nothing_to_write_with(agent_runner: AgentRunner, shop: Path) -> None:
    agent_runner.models.script("Keep it.")
    await agent_runner.run("Shall we?", target=AGENTS / "oracle")
    (request,) = agent_runner.models.requests
    assert tools(request) == {"fs_glob", "fs_grep", "fs_ls", "fs_read", "fetch_url_via_curl", "web_search_loki"}


async def test_sisyphus_sends_an_explorer_keeps_its_list_and_goes_on_until_it_is_done(
    agent_runner: AgentRunner, shop: Path
) -> None:
    asked: list[str] = []

    def answer(request: Request) -> Reply | str:
        told = results(request)
        if system(request).startswith("You find things"):
            asked.append(request.prompt)
            return "It is `shop/prices.py:6`."
        match len(told):
            case 0:
                steps: list[tuple[str, Any]] = [("todo__init", {"goal": "Tell"}), ("todo__add", {"task": "look"})]
                return Reply(calls=[*steps, ("agent__spawn", {"agent": "explore", "prompt": "Where are prices?"})])
            case 3 if request.prompt == "Where are prices?":
                return "I wait."  # a step is open, so it is told to go on
            case 3:
                return Reply(calls=[("agent__collect", {"id": json.loads(told[2])["id"]})])
            case 4:
                return Reply(calls=[("todo__done", {"id": 1})])
        return f"Found: {json.loads(told[3])['output']}"

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("Where are prices?", target=AGENTS / "sisyphus")
    assert outcome.status == "done", outcome.error
    assert outcome.output.endswith("Found: It is `shop/prices.py:6`.")
    assert asked == ["Where are prices?"]
    assert tools(agent_runner.models.requests[0]) == {
        *("fs_glob", "fs_grep", "fs_ls", "fs_read", "fs_edit", "fs_patch", "execute_command", "run_tests")
    }


async def test_a_plan_of_the_coder_that_sisyphus_sent_is_shown_to_a_person(
    agent_runner: AgentRunner, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUILD_CMD", "true")
    monkeypatch.setenv("TEST_CMD", "true")
    plan = {"plan_summary": "Add a note.", "files_to_modify": [], "files_to_create": ["NOTE"]}
    plan |= {"complexity_score": 9, "risks": []}

    def lead(told: list[str]) -> Reply | str:
        if not told:
            return Reply(calls=[("agent__spawn", {"agent": "coder", "prompt": "Goal: a note"})])
        last = json.loads(told[-1].split("\n\n")[0])
        if last.get("status") == "completed":
            return f"It says {last['output'].splitlines()[0]}."
        return Reply(calls=[("agent__collect", {"id": json.loads(told[0])["id"]})])

    def answer(request: Request) -> Reply | str:
        told = results(request)
        if system(request).startswith("You plan a change"):
            return json.dumps(plan)
        if system(request).startswith("You change the project"):
            return "Noted." if told else Reply(calls=[("fs_write", {"path": "NOTE", "contents": "x"})])
        return lead(told)

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("Leave a note", target="sisyphus", answers={"gate_approval": "yes"})
    assert outcome.status == "done", outcome.error
    assert outcome.output == "It says CODER_COMPLETE."
    assert (shop / "NOTE").read_text() == "x"
    (asked,) = agent_runner.of("question.asked")
    assert "/sisyphus/" in asked.question["actor"]
    assert asked.question["actor"].endswith("/gate_approval")
    (child,) = outcome.children
    assert (child.agent, child.status) == ("coder", "completed")


async def test_sisyphus_reads_what_a_coder_that_failed_reports(agent_runner: AgentRunner, shop: Path) -> None:
    plan = {"plan_summary": "Add.", "files_to_modify": [], "files_to_create": [], "complexity_score": 1, "risks": []}

    def answer(request: Request) -> Reply | str:
        told = results(request)
        if system(request).startswith("You plan a change"):
            return json.dumps(plan)
        if system(request).startswith("You change the project"):
            return "Fixed it. All tests pass."
        match len(told):
            case 0:
                return Reply(calls=[("agent__spawn", {"agent": "coder", "prompt": "Mend total()"})])
            case 1:
                return Reply(calls=[("agent__collect", {"id": json.loads(told[0])["id"]})])
        return told[1]

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("Mend it", target=AGENTS / "sisyphus")
    assert outcome.status == "done", outcome.error
    report = json.loads(outcome.output.split("\n\n")[0])
    assert report["exit_status"].startswith("Failed(")
    assert "coder failed: no file was changed" in report["exit_status"]
    assert report["output"].startswith("CODER_FAILED\nAdd.\nReason: no file was changed\n")
    (child,) = outcome.children
    assert (child.agent, child.status) == ("coder", "failed")


@pytest.mark.parametrize(
    ("remove", "status", "more"),
    [("", "failed", "2 of 3 tests fail"), ("tests", "not tested", "no tests were found")],
)
async def test_sisyphus_runs_the_tests_and_is_told_what_they_prove(
    agent_runner: AgentRunner, shop: Path, remove: str, status: str, more: str
) -> None:
    if remove:
        shutil.rmtree(shop / remove)
    agent_runner.models.script(Reply(calls=[("run_tests", {})]), "I see.")
    await agent_runner.run("Do the tests pass?", target=AGENTS / "sisyphus")
    (told,) = results(agent_runner.models.requests[1])
    found = json.loads(told)
    assert (found["status"], found["reasons"]) == (status, [more])


async def test_sisyphus_can_spawn_only_whom_its_file_names(agent_runner: AgentRunner, shop: Path) -> None:
    agent_runner.models.script(Reply(calls=[("agent__spawn", {"agent": "demo", "prompt": "hi"})]), "no")
    await agent_runner.run("Try", target=AGENTS / "sisyphus")
    (told,) = results(agent_runner.models.requests[1])
    assert "demo" in told
    assert "explore" in told


async def test_code_reviewer_has_every_changed_file_reviewed_and_puts_the_findings_together(
    agent_runner: AgentRunner, repository: Path
) -> None:
    seen: dict[str, str] = {}

    def lead(told: list[str]) -> Reply | str:
        match len(told):
            case 0:
                return Reply(calls=[("changed_files", {})])
            case 1:
                files = [file["path"] for file in json.loads(told[0])["files"]]
                return Reply(calls=[("agent__spawn", {"agent": "file-reviewer", "prompt": path}) for path in files])
            case 3:
                return Reply(calls=[("agent__collect", {"id": json.loads(text)["id"]}) for text in told[1:]])
        return "\n".join(json.loads(text)["output"] for text in told[3:])

    def review(path: str, told: list[str]) -> Reply | str:
        if not told:
            return Reply(calls=[("file_diff", {"path": path}), ("agent__check_inbox", {})])
        seen[path] = told[0]
        return f"`{path}:1` warning: look again"

    def answer(request: Request) -> Reply | str:
        told = results(request)
        return lead(told) if system(request).startswith("You lead") else review(request.prompt, told)

    agent_runner.models.answer_with(answer)
    outcome = await agent_runner.run("Review what I have not committed", target=AGENTS / "code-reviewer")
    assert outcome.status == "done", outcome.error
    assert outcome.output.splitlines() == [
        "`shop/new *.py:1` warning: look again",
        "`shop/prices.py:1` warning: look again",
    ]
    assert "+    return PRICES.get(article)" in seen["shop/prices.py"]
    assert "+import os" in seen["shop/new *.py"]


async def test_a_base_that_does_not_exist_is_told_to_the_reviewer(agent_runner: AgentRunner, repository: Path) -> None:
    agent_runner.models.script(Reply(calls=[("changed_files", {"base": "--output=x"})]), "no")
    await agent_runner.run("Review", target=AGENTS / "code-reviewer")
    (told,) = results(agent_runner.models.requests[1])
    assert "git could not read commit '--output=x': there is none" in told
    assert not (repository / "x").exists()


async def test_the_tools_of_the_demo_do_what_they_say(agent_runner: AgentRunner, shop: Path, tmp_path: Path) -> None:
    greeting = {"name": "Ada", "others": ["Bob's"], "times": 2, "tone": "loud", "wave": True}
    agent_runner.models.script(
        Reply(
            calls=[
                ("greet", greeting),
                ("greet", {"name": "$(id)"}),
                ("roll", {"sides": "8", "dice": 3}),
                ("join", {"part": ["a b", "-c"], "between": "; "}),
                ("remember", {"text": "milk"}),
            ]
        ),
        Reply(calls=[("forget", {})]),
        "done",
    )
    notes = tmp_path / "cache"
    outcome = await agent_runner.run("Show me", target=AGENTS / "demo", variables={"username": "Ada"}, answers=["yes"])
    assert outcome.status == "done", outcome.error
    first, second, third = agent_runner.models.requests
    assert "You show Ada what an agent can do" in system(first)
    assert "greet: Greet somebody." in system(first)
    loud, plain, rolled, joined, kept = (json.loads(text) for text in results(second))
    assert loud["output"].splitlines() == ["HELLO, ADA! o/"] * 2 + ["HELLO, BOB'S! o/"] * 2
    assert plain["output"].strip() == "Hello, $(id)!"
    assert sum(rolled["rolls"]) == rolled["total"]
    assert all(1 <= one <= 8 for one in rolled["rolls"])
    assert len(rolled["rolls"]) == 3
    assert joined["output"].strip() == "a b; -c"
    assert kept["output"].strip() == "kept"
    assert "deleted" in results(third)[-1]
    (asked,) = agent_runner.of("question.asked")
    assert "Delete all notes of Ada?" in asked.question["text"]
    assert list(notes.rglob("notes.txt")) == []


async def test_the_demo_offers_each_of_its_functions_and_none_that_begins_with_an_underscore(
    agent_runner: AgentRunner, shop: Path
) -> None:
    agent_runner.models.script("hello")
    await agent_runner.run("hi", target=AGENTS / "demo")
    (request,) = agent_runner.models.requests
    assert tools(request) == {"greet", "roll", "join", "remember", "forget", "get_current_time", "fs_ls", "fs_cat"}
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request.json["tools"]}
    assert schemas["greet"]["required"] == ["name"]
    properties = schemas["greet"]["properties"]
    assert properties["times"]["type"] == "integer"
    assert properties["tone"]["enum"] == ["plain", "loud", "quiet"]
    assert properties["wave"]["type"] == "boolean"
    assert properties["others"]["type"] == "array"


async def test_a_built_in_agent_is_found_by_its_name_and_a_copy_of_the_users_comes_first(
    agent_runner: AgentRunner,
) -> None:
    agent_runner.models.script("ours", "theirs")
    assert (await agent_runner.run("Topic: tea", target="report-writer")).output == "ours"
    agent_runner.plain("instructions: Rhyme.", name="report-writer")
    assert (await agent_runner.run("Topic: tea", target="report-writer")).output == "theirs"
    ours, theirs = agent_runner.models.requests
    assert "plain Markdown" in system(ours)
    assert system(theirs).startswith("Rhyme.")
