"""Cases 79 to 93 of loki.md once more, as whole runs over the wire; what each means in detail is tested in its room."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.agent_runs import AgentRunner
from support.fake_models import Reply, Request
from support.messages import fragment, has_message

BOSS = "can_spawn_agents: true\nmax_concurrent_agents: {most}\ncan_ask_user: false\nauto_continue: false"


def told(request: Request, number: int = -1) -> Any:
    """A tool result of the request's history, as a value."""
    return json.loads(request.results[number].split("\n\n")[0])


def is_child(request: Request) -> bool:
    return "I am a child" in request.system


async def test_case_79_todos_are_counted_from_one_and_told_by_either_type_of_id(wired: AgentRunner) -> None:
    wired.plain("auto_continue: true\nmax_auto_continues: 0", name="clerk")
    wired.models.script(
        Reply(calls=[("todo__init", {"goal": "g"}), ("todo__add", {"task": "a"}), ("todo__add", {"task": "b"})]),
        Reply(calls=[("todo__done", {"id": "2"}), ("todo__done", {"id": 9}), ("todo__list", {})]),
        "done",
    )
    await wired.run("go", target="clerk")
    results = [json.loads(text) for text in wired.models.requests[2].results]
    assert [result.get("id") for result in results[1:3]] == [1, 2]
    assert results[3]["status"] == "ok"
    assert results[4] == {"error": "Todo 9 not found"}
    assert [todo["done"] for todo in results[5]["todos"]] == [False, True]


async def test_case_80_two_open_todos_and_two_continues_are_two_more_turns(wired: AgentRunner) -> None:
    wired.plain("auto_continue: true\nmax_auto_continues: 2", name="clerk")
    wired.models.script(
        Reply(calls=[("todo__add", {"task": "a"}), ("todo__add", {"task": "b"})]), "one", "two", "three", "never"
    )
    assert (await wired.run("go", target="clerk")).output == "one\ntwo\nthree"
    assert "Progress: 0/2 completed" in wired.models.requests[-1].prompt


async def test_case_81_the_fifth_of_four_is_refused_until_one_has_ended(wired: AgentRunner) -> None:
    wired.plain(BOSS.format(most=4), name="boss")
    wired.plain("instructions: I am a child", name="kid")
    spawn = ("agent__spawn", {"agent": "kid", "prompt": "work"})

    def answer(request: Request) -> Reply | str:
        if is_child(request):
            return Reply(text="worked", delay=0.05)
        if not request.results:
            return Reply(calls=[spawn] * 5)
        if len(request.results) == 5:
            return Reply(calls=[("agent__collect", {"id": told(request, 0)["id"]}), *[("agent__list", {})]])
        if len(request.results) == 7:
            return Reply(calls=[spawn])
        return request.results[-1]

    wired.models.answer_with(answer)
    outcome = await wired.run("go", target="boss")
    parents = [request for request in wired.models.requests if not is_child(request)]
    fifth = json.loads(parents[-1].results[4])
    assert fifth == {
        "status": "error",
        "message": fragment("engine.conversation.team.Team._spawn_called", running="4", most="4"),
    }
    assert json.loads(outcome.output)["status"] == "ok"


async def test_case_82_depth_is_limited(wired: AgentRunner) -> None:
    wired.plain(BOSS.format(most=4) + "\nmax_agent_depth: 3", name="boss")

    def answer(request: Request) -> Reply | str:
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "boss", "prompt": "deeper"})])
        last = told(request)
        if last["status"] == "error":
            return str(last["message"])
        if "exit_status" in last:
            return str(last["output"])
        return Reply(calls=[("agent__collect", {"id": last["id"]})])

    wired.models.answer_with(answer)
    assert has_message(
        (await wired.run("go", target="boss")).output, "work.context.RunContext.too_deep", depth=4, most=3
    )


def deeper(request: Request) -> Reply | str:
    """Every agent spawns `boss` and tells what came of it."""
    if not request.results:
        return Reply(calls=[("agent__spawn", {"agent": "boss", "prompt": "deeper"})])
    last = told(request)
    if last["status"] == "error":
        return str(last["message"])
    return str(last["output"]) if "exit_status" in last else Reply(calls=[("agent__collect", {"id": last["id"]})])


@pytest.mark.parametrize(
    ("root", "below", "told"),
    [(8, None, "9/8"), (5, 8, "6/5"), (None, 8, "4/3"), (None, None, "4/3"), (8, 4, "5/4"), (2, 1, "2/1")],
)
@pytest.mark.sample(8)
async def test_the_bound_of_the_first_agent_counts_and_is_never_raised_below(
    wired: AgentRunner, root: int | None, below: int | None, told: str
) -> None:
    for name, depth in (("first", root), ("boss", below)):
        wired.plain(BOSS.format(most=4) + (f"\nmax_agent_depth: {depth}" if depth else ""), name=name)
    wired.models.answer_with(deeper)
    output = (await wired.run("go", target="first")).output
    depth, _, most = told.partition("/")
    assert has_message(output, "work.context.RunContext.too_deep", depth=depth, most=most)


async def test_case_83_a_child_is_collected_once(wired: AgentRunner) -> None:
    wired.plain(BOSS.format(most=4), name="boss")
    wired.plain("instructions: I am a child", name="kid")

    def answer(request: Request) -> Reply | str:
        if is_child(request):
            return "worked"
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "work"})])
        id = told(request, 0)["id"]
        if len(request.results) < 3:
            return Reply(calls=[("agent__collect", {"id": id})])
        return "done"

    wired.models.answer_with(answer)
    await wired.run("go", target="boss")
    results = [json.loads(text) for text in wired.models.requests[-1].results]
    assert (results[1]["status"], results[1]["exit_status"], results[1]["output"]) == (
        "completed",
        "Completed",
        "worked",
    )
    assert results[2]["status"] == "error"
    assert has_message(results[2]["message"], "engine.conversation.team.Team._not_found.3")


async def test_case_84_a_finished_task_starts_the_agent_of_the_next(wired: AgentRunner) -> None:
    wired.plain(BOSS.format(most=4), name="boss")
    wired.plain("instructions: I am a child", name="kid")

    def answer(request: Request) -> Reply | str:
        if is_child(request):
            return "built"
        count = len(request.results)
        if count == 0:
            work = {"subject": "build", "blocked_by": ["1"], "agent": "kid", "prompt": "build it"}
            return Reply(calls=[("agent__task_create", {"subject": "look"}), ("agent__task_create", work)])
        if count == 2:
            return Reply(calls=[("agent__task_complete", {"task_id": "task_1"})])
        if count == 3:
            return Reply(calls=[("agent__list", {})])
        if count == 4:
            (agent,) = told(request)["agents"]
            return Reply(calls=[("agent__collect", {"id": agent["id"]}), ("agent__task_list", {})])
        if count == 6:
            return Reply(calls=[("agent__task_list", {})])
        return "done"

    wired.models.answer_with(answer)
    await wired.run("go", target="boss")
    results = [json.loads(text) for text in wired.models.requests[-1].results]
    assert [result["task_id"] for result in results[:2]] == ["task_1", "task_2"]
    assert results[2]["newly_runnable"] == ["task_2"]
    assert [task["status"] for task in results[6]["tasks"]] == ["completed", "completed"]


async def test_case_85_an_agent_needs_a_prompt(wired: AgentRunner) -> None:
    wired.plain(BOSS.format(most=4), name="boss")
    wired.models.script(Reply(calls=[("agent__task_create", {"subject": "x", "agent": "kid"})]), "done")
    await wired.run("go", target="boss")
    assert has_message(wired.models.requests[1].results[0], "work.agent.team_state.TaskQueue.create")


async def test_case_87_the_parent_answers_its_childs_question(wired: AgentRunner) -> None:
    wired.plain(BOSS.format(most=4), name="boss")
    wired.plain("instructions: I am a child", name="kid")

    def answer(request: Request) -> Reply | str:
        if is_child(request):
            ask = ("user__ask", {"question": "Which?", "options": ["a", "b"]})
            return request.results[0] if request.results else Reply(calls=[ask])
        if not request.results:
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "work"})])
        last = told(request)
        if "pending_escalations" in last:
            id = last["pending_escalations"][0]["escalation_id"]
            bad = ("agent__reply_escalation", {"escalation_id": "esc_00000000", "reply": "b"})
            return Reply(calls=[bad, ("agent__reply_escalation", {"escalation_id": id, "reply": "b"})])
        if "exit_status" in last:
            return str(last["output"])
        return Reply(calls=[("agent__collect", {"id": told(request, 0)["id"]})])

    wired.models.answer_with(answer)
    assert (await wired.run("go", target="boss")).output == '{"answer":"b"}'
    assert has_message(
        wired.models.requests[-1].results[2], "work.agent.team_state.Escalations.reply", id="esc_00000000"
    )


async def test_case_88_a_long_answer_of_a_child_is_summarized(wired: AgentRunner) -> None:
    wired.plain(BOSS.format(most=4) + "\nsummarization_threshold: 4000", name="boss")
    wired.plain("instructions: I am a child", name="kid")
    sizes = iter([4_000, 3_999])

    def answer(request: Request) -> Reply | str:
        if "shorten the report" in request.system:
            return "SHORT"
        if is_child(request):
            return "x" * next(sizes)
        if len(request.results) in (0, 2):
            return Reply(calls=[("agent__spawn", {"agent": "kid", "prompt": "work"})])
        if len(request.results) in (1, 3):
            return Reply(calls=[("agent__collect", {"id": told(request)["id"]})])
        return "done"

    wired.models.answer_with(answer)
    await wired.run("go", target="boss")
    results = wired.models.requests[-1].results
    assert json.loads(results[1])["output"] == "SHORT"
    assert json.loads(results[3])["output"] == "x" * 3_999


async def test_case_89_the_third_identical_call_is_not_played(wired: AgentRunner) -> None:
    wired.plain("global_tools: [get_current_time]\ncan_ask_user: false", name="clerk")
    wired.models.script(*[Reply(calls=[("get_current_time", {})])] * 3, "done")
    outcome = await wired.run("go", target="clerk")
    results = wired.models.requests[-1].results
    assert ["tool_call_loop_alert" in text for text in results] == [False, False, True]
    assert outcome.tool_calls == 2


async def test_case_92_results_of_tool_files(wired: AgentRunner) -> None:
    home = wired.plain("can_ask_user: false", name="clerk")
    (home / "tools.sh").write_text(
        '# @cmd One.\none() { printf \'{"x":1}\' >> "$LLM_OUTPUT"; }\n'
        '# @cmd Two.\ntwo() { printf hi >> "$LLM_OUTPUT"; }\n'
        "# @cmd Three.\nthree() { :; }\n"
        "# @cmd Four.\nfour() { echo oops >&2; exit 2; }\n"
    )
    wired.models.script(Reply(calls=[(name, {}) for name in ("one", "two", "three", "four")]), "done")
    await wired.run("go", target="clerk")
    one, two, three, four = wired.models.requests[-1].results
    assert (one, two, three) == ('{"x":1}', '{"output":"hi"}', "DONE")
    assert json.loads(four) == {"tool_call_error": "Tool call 'four' exited with code 2", "stderr": "oops"}
