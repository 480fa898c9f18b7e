"""A model as it is asked."""

from __future__ import annotations

import msgspec
import pytest
from support.messages import says

from callboard.actors.work.models.catalog import ModelCatalog
from callboard.protocol.chat import AssistantTurn, ChatRequest, ImagePart, TextPart, ToolCall, ToolTurn, UserTurn
from callboard.protocol.errors import Unsupported
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings


def test_an_image_is_refused_where_the_settings_say_that_a_model_takes_none() -> None:
    request = ChatRequest(messages=(UserTurn((TextPart("what is it?"), ImagePart(url="http://x/y.png"))),))
    for sees in (True, False):
        client = ClientSettings(type="openai", name="openai", models=(ModelSettings(name="m", supports_vision=sees),))
        target = ModelCatalog(Settings(clients=(client,)), {"OPENAI_API_KEY": "sk"}).target("openai:m")
        if sees:
            assert target.complete(request, Settings()) == msgspec.structs.replace(request, model="openai:m")
        else:
            with pytest.raises(Unsupported, match=says("work.models.catalog.ModelTarget.complete", id="openai:m")):
                target.complete(request, Settings())


def test_an_image_of_a_tool_is_named_to_a_model_that_takes_none() -> None:
    shown = ToolTurn(call="a", name="shot", content=(TextPart("here"), ImagePart(media_type="image/png", data=b"x")))
    turns = (UserTurn("hi"), AssistantTurn("", (ToolCall(id="a", name="shot"),)), shown)
    client = ClientSettings(type="openai", name="openai", models=(ModelSettings(name="m", supports_vision=False),))
    target = ModelCatalog(Settings(clients=(client,)), {"OPENAI_API_KEY": "sk"}).target("openai:m")
    sent = target.complete(ChatRequest(messages=turns), Settings()).messages[2]
    assert isinstance(sent, ToolTurn)
    assert sent.content == (TextPart("here"), TextPart("[image, image/png]"))


@pytest.mark.parametrize(
    ("prefix", "system", "sent"),
    [
        ("Formatting re-enabled", "Be terse.", "Formatting re-enabled\n\nBe terse."),
        ("Formatting re-enabled\n", "Be terse.", "Formatting re-enabled\nBe terse."),
        ("/no_think ", "Be terse.", "/no_think Be terse."),
        ("Formatting re-enabled", "", "Formatting re-enabled"),
        ("", "Be terse.", "Be terse."),
    ],
)
def test_the_prefix_of_the_system_prompt_is_a_line_of_its_own(prefix: str, system: str, sent: str) -> None:
    model = ModelSettings(name="m", system_prompt_prefix=prefix)
    client = ClientSettings(type="openai", name="openai", models=(model,))
    target = ModelCatalog(Settings(clients=(client,)), {"OPENAI_API_KEY": "sk"}).target("openai:m")
    assert target.complete(ChatRequest(messages=(UserTurn("hi"),), system=system), Settings()).system == sent
