"""The chat: knowledge bases, secrets, config.yaml (sections 15, 20, 22 of the plan; 13, 18 of the checklist)."""

from __future__ import annotations

import pytest
from qa.chat import Chat
from qa.terminal import ENTER


@pytest.fixture
def fruit(chat: Chat) -> Chat:
    """The chat, with a base of two documents."""
    (chat.qa_home.config / "knowledge").mkdir(exist_ok=True)
    (chat.qa_home.config / "knowledge" / "fruit.yaml").write_text(
        f"documents: [{chat.qa_home.config.parent / 'fruit'}]\n"
    )
    chat.into(".rag fruit", "k:fruit")
    return chat


def test_p15_1_p15_7_c13_1_c13_7_what_a_base_has_goes_with_the_prompt(fruit: Chat) -> None:
    fruit.say("which colour has a plum?", "You said: ")
    assert "A plum is blue." in fruit.qa_home.last().prompt


def test_p15_2_c13_2_a_base_is_shown(fruit: Chat) -> None:
    fruit.say(".info rag", "fruit")


def test_p15_3_c13_3_the_sources_of_the_last_answer_are_listed(fruit: Chat) -> None:
    fruit.say("which colour has a plum?", "You said: ")
    fruit.say(".sources rag", r"plums\.md")


def test_p15_4_p22_5_c13_4_its_documents_open_in_the_editor(fruit: Chat) -> None:
    fruit.edits(".edit rag-docs")
    fruit.say("and on", "You said: ")
    assert str(fruit.qa_home.config.parent / "fruit") in fruit.qa_home.opened()


def test_p15_5_c13_5_a_base_is_built_anew(fruit: Chat) -> None:
    fruit.say(".rebuild rag", "(?i)built|rebuilt|chunk|added")


def test_p15_6_c13_6_a_base_is_left(fruit: Chat) -> None:
    fruit.out(".exit rag", "k:")
    fruit.say("which colour has a plum?", "You said: ")
    assert fruit.qa_home.last().prompt == "which colour has a plum?"


def test_p22_1_the_settings_open_in_the_editor(chat: Chat) -> None:
    chat.edits(".edit config")
    chat.say("and on", "You said: and on")
    assert "rag_embedding_model" in chat.qa_home.opened()


def test_p20_1_p20_2_p20_3_p20_4_p20_5_c18_1_c18_2_c18_3_c18_4_c18_5_secrets_are_kept_shown_changed_and_deleted(
    chat: Chat,
) -> None:
    pytest.importorskip("pyrage", reason="the extra `vault` is not installed")
    for command, value in (("add", "first-value-1"), ("update", "second-value-2")):
        chat.terminal.line(f".vault {command} mysecret")
        chat.terminal.shows("callboard asks")
        chat.answer(value + ENTER)
        chat.terminal.shows_not(value)
        chat.say(".vault get mysecret", value)
    chat.say(".vault list", "^mysecret")
    chat.terminal.line(".vault delete mysecret")
    chat.terminal.shows("callboard asks")
    chat.answer("1" + ENTER)
    chat.say(".vault list", "(?i)(no |none|empty|nothing)")
