"""A FastAPI application with one root for all requests: server-sent events, questions over HTTP, what is left.

CALLBOARD_CONFIG_DIR=... uvicorn fastapi_app:app
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import callboard

BOT = callboard.Agent(name="bot", instructions="Be brief.", global_tools=("execute_command",), can_ask_user=False)

ASK = """
name: ask
start: who
nodes:
  who: {type: approval, question: "Ship it?", options: ["yes", "no"], routes: {"yes": end, "no": end}, on_other: end}
  end: {type: end, output: "said {{choice}}"}
"""


class Person:
    """Keeps open questions for `GET /questions`."""

    name = "http"

    def asked(self, question: callboard.Question) -> None:
        pass

    def closed(self, question_id: str, by: str) -> None:
        pass


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with callboard.Root() as root:
        app.state.root = root
        app.state.begun = set()
        with root.questions.attach(Person()):
            yield


app = FastAPI(lifespan=lifespan)


@app.get("/chat")
async def chat(q: str) -> StreamingResponse:
    async def sse() -> AsyncIterator[str]:
        async with app.state.root.stream(BOT, q, allow=("execute_command",)) as run:
            async for text in run.text():
                yield f"data: {json.dumps(text)}\n\n"

    return StreamingResponse(sse(), media_type="text/event-stream")


@app.get("/ask")
async def ask(graph: str) -> dict[str, str]:
    task = asyncio.create_task(app.state.root.run(graph, "go", durable=True, id="run-asked"))
    app.state.begun.add(task)
    while not app.state.root.questions.open:
        await asyncio.sleep(0.01)
    return {"question": app.state.root.questions.open[0].id}


@app.get("/answer")
async def answer(question: str, value: str) -> dict[str, Any]:
    answered = await app.state.root.answer(question, value, by="http")
    outcome = await app.state.root.resume("run-asked")
    return {"answered": answered, "status": outcome.status, "output": outcome.output}


@app.get("/left")
async def left() -> dict[str, Any]:
    root: callboard.Root = app.state.root
    runs = await root.call(lambda: _runs(root))
    return {"runs": runs, "cpu": sum(psutil.Process().cpu_times()[:2]), "threads": psutil.Process().num_threads()}


async def _runs(root: callboard.Root) -> list[str]:
    return [child.name for child in root.kernel.actor.children if child.name.startswith("run-")]
