"""Fixtures of the rows of Loki's checks; see rows.py for what they are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from qa.chat import Chat
from qa.home import QaHome, answer, open_qa_home


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QaHome]:
    """The home of a module; tests take `qa_home`."""
    with open_qa_home(tmp_path_factory.mktemp("home")) as qa_home:
        yield qa_home


@pytest.fixture
def qa_home(lived_in: QaHome) -> QaHome:
    """The home of this module, tidied: what one test has scripted or set is not there for the next."""
    lived_in.models.answer_with(answer)
    lived_in.settings()
    lived_in.editor_writes(None)
    return lived_in


@pytest.fixture(scope="module")
def _chat(lived_in: QaHome) -> Iterator[Chat]:
    chat = Chat(lived_in)
    yield chat
    chat.close()


@pytest.fixture
def chat(qa_home: QaHome, _chat: Chat) -> Chat:
    """A conversation at the terminal, in nothing; the program is that of the module's other tests if it still runs."""
    _chat.begin()
    return _chat
