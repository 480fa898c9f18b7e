"""How often a request for vectors is sent anew, as the environment says."""

from __future__ import annotations

import pytest

from callboard.actors.work.knowledge.embed.embedders import Embedders, retry_limit
from callboard.protocol.errors import ConfigError
from callboard.protocol.settings import Settings


def test_ours_goes_before_lokis_and_without_either_it_is_two() -> None:
    assert retry_limit({}) == 2
    assert retry_limit({"LOKI_EMBEDDINGS_RETRY_LIMIT": "0"}) == 0
    assert retry_limit({"LOKI_EMBEDDINGS_RETRY_LIMIT": "0", "CALLBOARD_EMBEDDINGS_RETRY_LIMIT": "5"}) == 5


@pytest.mark.parametrize("text", ["many", "-1", "101", "1.5"])
def test_a_limit_that_is_none_names_the_variable(text: str) -> None:
    with pytest.raises(ConfigError, match=f"LOKI_EMBEDDINGS_RETRY_LIMIT is '{text}': expected a whole number"):
        Embedders(Settings(), {"LOKI_EMBEDDINGS_RETRY_LIMIT": text})
