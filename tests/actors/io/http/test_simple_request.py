"""Short requests to services that give out credentials."""

from __future__ import annotations

import pytest
from support.fake_models import FakeModels, Reply
from support.messages import says

from callboard.actors.io.http.transport import MOST, simple_request
from callboard.protocol.errors import CredentialsError, UpstreamError


async def test_an_answer_comes_whatever_its_status(fake_model: FakeModels) -> None:
    fake_model.script(Reply(status=418, raw=b"teapot", headers={"x-kind": "pot"}), Reply(raw=b""))
    answer = await simple_request("POST", f"{fake_model.url}/a?b=1", {"X-Own": "1"}, b"c=2", environ={}, timeout=60.0)
    assert (answer.status, answer.explanation, answer.headers["x-kind"]) == (418, "teapot", "pot")
    request = fake_model.requests[0]
    assert (request.method, request.path, request.body, request.headers["x-own"]) == ("POST", "/a?b=1", b"c=2", "1")
    assert (await simple_request("GET", fake_model.url, {}, environ={}, timeout=60.0)).explanation == "no explanation"


async def test_what_goes_wrong_names_the_host(fake_model: FakeModels) -> None:
    fake_model.script(Reply(raw=b"x" * (MOST + 1)), Reply(drop="at once"), Reply(delay=600.0))
    with pytest.raises(CredentialsError, match=says("io.http.transport.simple_request", where="127.0.0.1", MOST=65536)):
        await simple_request("GET", fake_model.url, {}, environ={}, timeout=60.0)
    with pytest.raises(UpstreamError, match=r"127\.0\.0\.1: "):
        await simple_request("GET", fake_model.url, {}, environ={}, timeout=60.0)
    with pytest.raises(UpstreamError, match=r"127\.0\.0\.1: "):
        await simple_request("GET", fake_model.url, {}, environ={}, timeout=0.05)
    for url in ("http://127.0.0.1:1/", "nonsense", "http://[::1"):
        with pytest.raises(UpstreamError):
            await simple_request("GET", url, {}, environ={}, timeout=60.0)
