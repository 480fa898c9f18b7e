"""A model as it is asked."""

from __future__ import annotations

import msgspec
import pytest
from support.messages import says

from callboard.actors.work.models.catalog import Catalog
from callboard.protocol.chat import ChatRequest, ImagePart, TextPart, UserTurn
from callboard.protocol.errors import Unsupported
from callboard.protocol.settings import ClientSettings, ModelSettings, Settings


def test_an_image_is_refused_where_the_settings_say_that_a_model_takes_none() -> None:
    request = ChatRequest(messages=(UserTurn((TextPart("what is it?"), ImagePart(url="http://x/y.png"))),))
    for sees in (True, False):
        client = ClientSettings(type="openai", name="openai", models=(ModelSettings(name="m", supports_vision=sees),))
        target = Catalog(Settings(clients=(client,)), {"OPENAI_API_KEY": "sk"}).target("openai:m")
        if sees:
            assert target.complete(request, Settings()) == msgspec.structs.replace(request, model="openai:m")
        else:
            with pytest.raises(Unsupported, match=says("work.models.target.Target.complete", id="openai:m")):
                target.complete(request, Settings())
