"""FastAPI: stream an agent's text as server-sent events. A client that disconnects cancels its run.

uvicorn --app-dir examples/python fastapi_stream:app
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse

import callboard

bot = callboard.Agent(name="bot", instructions="Be brief.")
root = callboard.Root()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with root:
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/chat")
async def chat(q: str) -> StreamingResponse:
    async def events() -> AsyncIterator[str]:
        async with root.stream(bot, q) as run:
            async for text in run.text():
                yield f"data: {json.dumps(text)}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
