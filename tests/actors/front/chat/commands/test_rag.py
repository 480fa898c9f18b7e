"""`.rag`: a base is made, looked up in, changed and left."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.chat_person import Scripted
from support.fake_models import FakeModels
from support.messages import says

from callboard.actors.front.chat.chat import Chat
from callboard.actors.front.chat.execution import execute_line
from callboard.actors.front.chat.methods import opened
from callboard.actors.work.knowledge.embed import local
from callboard.actors.work.models import weights
from callboard.protocol.control.caller import Caller
from callboard.protocol.control.chat import OpenChat
from callboard.protocol.errors import Conflict, Denied, NotFound, UsageError

pytestmark = pytest.mark.usefixtures("embeddings")


@pytest.fixture
def embeddings() -> None:
    """The small model of this machine makes the vectors."""
    if not weights.KNOWN[local.PULLED_AS].are_in(weights.directory(os.environ)):
        pytest.skip(f"needs weights: callboard models pull {local.PULLED_AS}")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "warranty.md").write_text("# Warranty\n\nThe warranty lasts for three years.\n")
    return folder


async def test_a_name_that_is_not_known_makes_a_base_of_what_the_person_names(
    chat: Chat, fake_model: FakeModels, documents: Path
) -> None:
    person = Scripted(str(documents), "", "")
    await execute_line(chat, ".rag handbook", person)
    assert chat.rag == "handbook"
    assert "1 source," in person.text
    await execute_line(chat, "How long is the warranty?", person)
    assert "three years" in fake_model.requests[-1].prompt
    await execute_line(chat, ".sources rag", person)
    assert str(documents / "warranty.md") in person.told[-1].text
    await execute_line(chat, ".info rag", person)
    assert "handbook" in person.told[-1].text
    await execute_line(chat, ".exit rag", person)
    assert chat.rag is None
    await execute_line(chat, "And now?", person)
    assert "three years" not in fake_model.requests[-1].json["messages"][-1]["content"]


async def test_no_documents_make_no_base(chat: Chat) -> None:
    with pytest.raises(UsageError, match=says("front.chat.commands.rag._make.2")):
        await execute_line(chat, ".rag handbook", Scripted(None))
    assert chat.rag is None


async def test_edited_documents_are_built_and_errors_come_back_to_the_editor(chat: Chat, documents: Path) -> None:
    person = Scripted(str(documents), "", "")
    await execute_line(chat, ".rag handbook", person)
    other = documents.parent / "other.txt"
    other.write_text("Returns are free.")
    person.edits = ["documents: []\n", f"documents: [{documents}, {other}]\n"]
    await execute_line(chat, ".edit rag-docs", person)
    assert "documents" in (person.edited[1].problem or "")
    assert "2 sources" in person.told[-1].text
    await execute_line(chat, ".rebuild rag", person)
    assert "2 sources" in person.told[-1].text


@pytest.mark.parametrize("line", [".info rag", ".sources rag", ".edit rag-docs", ".rebuild rag", ".exit rag"])
async def test_without_a_base_there_is_nothing_to_look_at(chat: Chat, person: Scripted, line: str) -> None:
    with pytest.raises(Conflict, match="No RAG"):
        await execute_line(chat, line, person)


async def test_where_a_base_lies_is_for_who_may_have_files(chat: Chat, documents: Path) -> None:
    await execute_line(chat, ".rag handbook", Scripted(str(documents), "", ""))
    few = Scripted(caller=Caller("bob", frozenset({"run:agents", "read:runs", "write:runs"})))
    await execute_line(chat, ".info rag", few)
    assert "handbook" in few.text
    assert str(documents.parent) not in few.text
    assert str(chat.hub.root.config_dir) not in few.text


async def test_a_chat_opens_in_a_base_as_rag_enters_one(chat: Chat, documents: Path, tmp_path: Path) -> None:
    await execute_line(chat, ".rag handbook", Scripted(str(documents), "", ""))
    few = Scripted(caller=Caller("bob", frozenset({"run:agents", "read:runs", "write:runs"})))
    other = Chat(chat.hub, "bob")
    with pytest.raises(Denied, match="run:files"):
        await opened(other, few, OpenChat(rag=str(tmp_path)))
    for name in ("nosuch", "x" * 9000):
        with pytest.raises(NotFound, match=says("front.chat.commands.rag.use_rag")) as refused:
            await opened(other, few, OpenChat(rag=name))
        assert "handbook" not in str(refused.value)
        assert len(str(refused.value)) < 200
    assert other.rag is None
    await opened(other, few, OpenChat(rag="handbook"))
    assert other.rag == "handbook"
