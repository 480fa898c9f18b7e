"""What a conversation begins with where nothing else is named."""

from __future__ import annotations

import pytest
from support.messages import says

from callboard.protocol.errors import ConfigError
from callboard.protocol.settings import Settings
from callboard.protocol.settings.model import Prelude, prelude_of


@pytest.mark.parametrize(
    ("text", "prelude"),
    [
        (None, Prelude()),
        ("", Prelude()),
        ("role:coder", Prelude(role="coder")),
        ("role:tr#it#x:y", Prelude(role="tr#it#x:y")),
        ("session:daily", Prelude(session="daily")),
        ("daily:coder", Prelude(session="daily", role="coder")),
    ],
)
def test_a_prelude_names_a_role_a_session_or_both(text: str | None, prelude: Prelude) -> None:
    assert prelude_of(Settings(other={"repl_prelude": text}), "repl_prelude") == prelude


@pytest.mark.parametrize("text", ["daily", "role:", ":coder", ":"])
def test_anything_else_is_an_error_that_says_what_there_is(text: str) -> None:
    with pytest.raises(ConfigError, match=says("protocol.settings.model.prelude_of", key="cmd_prelude")):
        prelude_of(Settings(other={"cmd_prelude": text}), "cmd_prelude")
