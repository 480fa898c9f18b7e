"""A trace that begins with a client of the server goes on in the run."""

from __future__ import annotations

from support.http_agents import HELLO
from support.http_server import SOON, Serve
from support.http_server import serve as serve  # a fixture
from support.traced import Traced
from support.waiting import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_a_run_that_http_asked_for_is_part_of_the_clients_trace(serve: Serve, traced: Traced) -> None:
    async with serve() as api_server:
        api_server.agent_runner.agent(HELLO, name="hello")
        with traced.of(api_server.agent_runner.root):
            headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            await api_server.post("/v1/runs", {"target": "hello", "prompt": "you"}, 201, headers=headers)
            await api_server.post("/v1/runs", {"target": "hello", "prompt": "you"}, 201)
            await until(lambda: [span.name for span in traced.spans].count("invoke_workflow hello") == 2, SOON)
    traces = [f"{span.context.trace_id:032x}" for span in traced.spans if span.name == "invoke_workflow hello"]
    assert traces.count(TRACE) == 1
