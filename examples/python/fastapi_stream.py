"""FastAPI: the text of an agent as server-sent events. A client that disconnects cancels its run.

uvicorn --app-dir examples/python fastapi_stream:app
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

import callboard

clerk = callboard.Agent(name="clerk", instructions="You answer in one sentence.")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
    async with callboard.Root() as app.state.root:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/ask", response_class=EventSourceResponse)
async def ask(question: str, request: Request) -> AsyncIterator[str | ServerSentEvent]:
    root: callboard.Root = request.app.state.root
    async with root.stream(clerk, question) as run:
        async for text in run.text():
            yield text
        outcome = await run.outcome()
        if outcome.error is not None:
            yield ServerSentEvent(event="error", data=outcome.error.message)
