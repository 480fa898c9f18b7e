"""The chat: agents, and agents below agents (sections 13, 14, 22, 24 of the plan; 11, 12 of the checklist)."""

from __future__ import annotations

import json
import re

from qa.chat import Chat
from qa.home import answer
from support.fake_models import Reply, Request
from support.messages import has_message


def test_p13_1_c11_1_an_agent_answers_with_its_tools(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.say("hello", "You said: hello")
    assert "You are the clerk" in chat.qa_home.last().system
    assert "drawer" in chat.qa_home.last().offered


def test_p13_2_c11_2_an_agent_in_a_session(chat: Chat) -> None:
    chat.into(".agent clerk mysession", "a:clerk s:mysession")


def test_p13_3_c11_3_an_agent_with_a_value(chat: Chat) -> None:
    chat.into(".agent clerk who=Grace", "a:clerk")
    chat.qa_home.says(Reply(calls=[("drawer", {})]), "Pencils.")
    chat.say("look", "Pencils.")
    assert "you work for Grace" in chat.qa_home.last().system
    assert "for Grace: pencils" in chat.qa_home.last().results[0]


def test_p13_4_c11_4_an_agent_is_shown(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.say(".info agent", "Looks after files")


def test_p13_5_p13_6_c11_5_c11_6_first_prompts_are_listed_and_asked(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.say(".starter", "1: What is in the drawer")
    chat.say(".starter 1", "You said: What is in the drawer")


def test_p13_7_p22_4_c11_7_an_agents_file_opens_in_the_editor(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.edits(".edit agent-config")
    chat.say("hello", "You said: hello")
    assert "Looks after files" in chat.qa_home.opened()


def test_p13_8_c11_8_an_agent_is_left(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.out(".exit agent", "a:")


def test_p13_9_p25_4_c11_9_the_servers_of_an_agent_come_and_go_with_it(chat: Chat) -> None:
    chat.into(".agent librarian", "a:librarian")
    chat.qa_home.says(Reply(calls=[("books__add", {"a": 20, "b": 22})]), "It is 42.")
    chat.say("add", "It is 42.")
    assert chat.qa_home.last().results == ["42"]
    chat.out(".exit agent", "a:")
    chat.say("and now?", "You said: and now?")
    assert not any("books" in name for name in chat.qa_home.last().offered)


def test_p13_10_p25_8_i3_an_agent_that_needs_servers_does_not_begin_without_their_support(chat: Chat) -> None:
    chat.terminal.line(".set mcp_server_support false")
    chat.idle()
    chat.say(".agent librarian", "(?i)mcp_server_support|MCP")
    assert "a:" not in chat.terminal.prompt()
    chat.terminal.line(".set mcp_server_support true")
    chat.idle()


def test_p13_11_c11_10_a_tool_runs_and_the_model_gets_its_result(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.qa_home.says(Reply(calls=[("drawer", {"label": "ink"})]), "There is ink.")
    chat.say("look into it", "There is ink.")
    assert "ink" in chat.qa_home.last().results[0]


def test_p13_12_c11_11_an_agent_has_the_global_tools_that_it_names(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.qa_home.says(Reply(calls=[("get_current_time", {})]), "Late.")
    chat.say("what time is it?", "Late.")
    assert {"drawer", "get_current_time"} <= set(chat.qa_home.last().offered)
    assert "error" not in chat.qa_home.last().results[0]


def test_p13_15_p13_14_c11_13_c11_14_a_todo_list_has_an_agent_go_on_until_it_is_cleared(chat: Chat) -> None:
    chat.into(".agent worker", "a:worker")
    chat.qa_home.says(
        Reply(calls=[("todo__init", {"goal": "cake"}), ("todo__add", {"task": "eggs"})]),
        "I have a list.",
        Reply(calls=[("todo__done", {"id": 1})]),
        "All is done.",
    )
    chat.say("bake", "All is done.")
    chat.terminal.line(".clear todo")
    chat.idle()
    assert "eggs" not in chat.say(".todo", r"(?i)no|empty|nothing")


def test_p13_16_p24_6_a_second_agent_is_refused(chat: Chat) -> None:
    chat.into(".agent clerk", "a:clerk")
    chat.say(".agent clerk", "Already in an agent")


def test_p24_4_without_an_agent_it_says_so(chat: Chat) -> None:
    chat.say(".info agent", "No agent")


# --- agents below agents


def test_p14_1_p14_2_p14_3_p14_4_p14_9_c12_1_c12_2_children_run_and_are_listed_checked_and_collected(
    chat: Chat,
) -> None:
    chat.into(".agent boss", "a:boss")
    spawned = [("agent__spawn", {"agent": "helper", "prompt": f"job {n}"}) for n in (1, 2, 3)]
    ids: list[str] = []

    def decide(request: Request) -> Reply | str:
        if "You are the boss" not in request.system:
            return answer(request)
        results = request.results
        if not results:
            return Reply(calls=spawned)
        ids[:] = [found["id"] for each in results[:3] if "id" in (found := json.loads(each))]
        if len(results) == 3:
            return Reply(calls=[("agent__list", {}), ("agent__check", {"id": ids[0]})])
        if len(results) == 5:
            return Reply(calls=[("agent__collect", {"id": ids[1]})])
        return "All collected."

    chat.qa_home.models.answer_with(decide)
    chat.say("have it done", "All collected.")
    results = [request for request in chat.qa_home.requests() if "You are the boss" in request.system][-1].results
    assert len(ids) == 2
    assert "capacity" in results[2].lower()
    assert all(id in results[3] for id in ids)
    assert "pending" in results[4] or "You said: job 1" in results[4]
    assert "You said: job 2" in results[5]


def test_p14_5_a_child_is_cancelled(chat: Chat) -> None:
    chat.into(".agent boss", "a:boss")

    def decide(request: Request) -> Reply | str:
        if "You are the boss" not in request.system:
            return Reply(text="never", delay=60)
        results = request.results
        if not results:
            return Reply(calls=[("agent__spawn", {"agent": "helper", "prompt": "wait"})])
        if len(results) == 1:
            return Reply(calls=[("agent__cancel", {"id": json.loads(results[0])["id"]})])
        return "It is cancelled."

    chat.qa_home.models.answer_with(decide)
    chat.say("cancel it", "It is cancelled.")
    boss = [request for request in chat.qa_home.requests() if "You are the boss" in request.system][-1]
    assert "cancel" in boss.results[1]


def test_p14_8_c12_6_an_agent_too_deep_is_refused(chat: Chat) -> None:
    chat.into(".agent boss", "a:boss")
    seen: list[str] = []

    def decide(request: Request) -> Reply | str:
        results = request.results
        if "You are the boss" in request.system:
            if not results:
                return Reply(calls=[("agent__spawn", {"agent": "helper", "prompt": "go deeper"})])
            if len(results) == 1:
                return Reply(calls=[("agent__collect", {"id": json.loads(results[0])["id"]})])
            return "Deep enough."
        if not results:
            return Reply(calls=[("agent__spawn", {"agent": "helper", "prompt": "and deeper"})])
        seen.extend(results)
        return "I could not."

    chat.qa_home.models.answer_with(decide)
    chat.say("go", "Deep enough.")
    assert has_message(seen[0], "work.context.RunContext.too_deep", depth="2", most="1")


def test_p14_10_a_sibling_finds_the_message_in_its_inbox(chat: Chat) -> None:
    chat.into(".agent boss", "a:boss")
    ids: list[str] = []
    found: list[str] = []

    def decide(request: Request) -> Reply | str:
        results = request.results
        if "You are the boss" in request.system:
            if not results:
                return Reply(calls=[("agent__spawn", {"agent": "helper", "prompt": n}) for n in ("reads", "writes")])
            ids[:] = [json.loads(each)["id"] for each in results[:2]]
            if len(results) == 2:
                return Reply(calls=[("agent__collect", {"id": id}) for id in ids])
            return "They have talked."
        if request.prompt.startswith("writes"):
            if not ids:
                return Reply(calls=[("agent__check_inbox", {})], delay=0.05)
            sent = any("status" in each for each in results)
            return "Sent." if sent else Reply(calls=[("agent__send_message", {"id": ids[0], "message": "plums"})])
        if any("plums" in each for each in results):
            found.append(results[-1])
            return "Read."
        pause = 0.05 if len(results) < 20 else 0.5  # a busy machine starts the other one late
        return Reply(calls=[("agent__check_inbox", {})], delay=pause) if len(results) < 40 else "Nothing came."

    chat.qa_home.models.answer_with(decide)
    chat.say("talk to each other", "They have talked.")
    assert found


def test_p14_6_p14_7_c12_3_c12_4_c12_5_the_parent_hears_what_its_children_ask_and_answers_them(chat: Chat) -> None:
    chat.into(".agent boss", "a:boss")
    told: dict[str, str] = {}
    last_notice: list[str] = []

    def decide(request: Request) -> Reply | str:
        results = request.results
        if "You are the helper" in request.system:
            if not results:
                return Reply(calls=[("user__ask", {"question": f"Colour of {request.prompt}?", "options": COLOURS})])
            return f"{request.prompt} is {json.loads(results[0])['answer']}."
        if not results:
            return Reply(calls=[("agent__spawn", {"agent": "helper", "prompt": door}) for door in ("door 1", "door 2")])
        ids = [json.loads(each)["id"] for each in results[:2]]
        notice = re.findall(r'"escalation_id": ?"(esc_\w+)".*?"question": ?"(.*?)"', results[-1])
        told.update({question: id for id, question in notice})
        last_notice.append(results[-1].rpartition("pending_escalations")[2])
        if len(told) < 2:  # which comes back for a child's question
            return Reply(calls=[("agent__collect", {"id": ids[0]})])
        if "continues" not in str(results):
            replies = zip(sorted(told), COLOURS, strict=True)
            return Reply(
                calls=[
                    ("agent__reply_escalation", {"escalation_id": told[question], "reply": colour})
                    for question, colour in replies
                ]
            )
        if "is blue." not in str(results):
            return Reply(calls=[("agent__collect", {"id": id}) for id in ids])
        return "Both are painted."

    chat.qa_home.models.answer_with(decide)
    shown = chat.say("paint them", "Both are painted.")
    assert sorted(told) == ["[ask] Colour of door 1?", "[ask] Colour of door 2?"]
    assert any("door 1" in each and "door 2" in each for each in last_notice)  # one notice has all that are open
    boss = [request for request in chat.qa_home.requests() if "You are the boss" in request.system][-1]
    assert "door 1 is red." in boss.results[-2]
    assert "door 2 is blue." in boss.results[-1]
    for door in ("door 1", "door 2"):  # the person sees them as well, with who asks, and that they are closed
        assert re.search(rf"agent_helper_\w+ asks\n +Colour of {door}\?", shown), shown
    assert shown.count("(closed") == 2


COLOURS = ["red", "blue"]


def test_c21_4_an_agent_that_was_shortened_goes_on_with_its_list(chat: Chat) -> None:
    chat.into(".agent plodder", "a:plodder")
    replies = [
        Reply(calls=[("todo__init", {"goal": "cake"}), ("todo__add", {"task": "eggs"})]),
        "It is a long story. " * 50,
        Reply(calls=[("todo__done", {"id": 1})]),
        "All is done.",
    ]
    summed_up: list[Request] = []
    gone_on: list[str] = []

    def decide(request: Request) -> Reply | str:
        if has_message(request.system, "work.agent.history.2"):
            summed_up.append(request)
            return "A cake is wanted."
        gone_on.append(str(request.json["messages"]))
        return replies.pop(0)

    chat.qa_home.models.answer_with(decide)
    shown = chat.say("bake", "All is done.")
    assert "plodder goes on: 1 open todo" in shown
    assert "plodder summarises its first 5 messages" in shown
    assert len(summed_up) == 1
    assert ["A cake is wanted." in each for each in gone_on] == [False, False, True, True]
    assert "long story" not in gone_on[2]
    assert "1. eggs" in gone_on[2]
