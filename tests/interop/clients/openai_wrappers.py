"""litellm, langchain-openai, instructor and llm against our server: `openai_wrappers.py BASE_URL TOKEN`.

Prints the outcome of each check; see `openai_checks` for the model and the agents.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else its import fetches a table of prices

import instructor
import litellm
import openai
from checks import check, found, print_outcomes
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

BASE, TOKEN = sys.argv[1:]
MODEL, VECTORS = "fake:model", "fake:vectors"
CALL = 'CALL clock {"zone": "UTC"}'
PARAMETERS = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
CLOCK: Any = {"type": "function", "function": {"name": "clock", "description": "Time.", "parameters": PARAMETERS}}
TO_LITELLM: Any = {"api_base": BASE, "api_key": TOKEN}

litellm.suppress_debug_info = True


class Person(BaseModel):
    """A person."""

    name: str
    age: int


ANN = Person(name="Ann", age=5)


def user(content: str) -> Any:
    return [{"role": "user", "content": content}]


def langchain() -> ChatOpenAI:
    return ChatOpenAI(base_url=BASE, api_key=TOKEN, model=MODEL, max_retries=0)


@check
def litellm_asks_an_agent() -> None:
    reply = litellm.completion(model="openai/agent/clerk", messages=user("hi"), **TO_LITELLM)
    assert reply.choices[0].message.content == "echo: hi"


@check
def litellm_streams() -> None:
    chunks = litellm.completion(model=f"openai/{MODEL}", messages=user("hi there"), stream=True, **TO_LITELLM)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "echo: hi there"


@check
def litellm_offers_tools() -> None:
    reply = litellm.completion(model=f"openai/{MODEL}", messages=user(CALL), tools=[CLOCK], **TO_LITELLM)
    assert reply.choices[0].message.tool_calls[0].function.name == "clock"


@check
def litellm_knows_the_class_of_errors() -> None:
    try:
        litellm.completion(model="openai/agent/nobody", messages=user("hi"), **TO_LITELLM)
    except litellm.NotFoundError:
        return
    raise AssertionError("no NotFoundError")


@check
def litellm_asks_for_responses() -> None:
    reply = litellm.responses(model=f"openai/{MODEL}", input="hi", **TO_LITELLM)
    assert reply.output[0].content[0].text == "echo: hi"


@check
def langchain_invokes() -> None:
    assert langchain().invoke("hi").content == "echo: hi"


@check
def langchain_streams() -> None:
    assert "".join(str(chunk.content) for chunk in langchain().stream("hi there")) == "echo: hi there"


@check
def langchain_binds_tools() -> None:
    assert langchain().bind_tools([CLOCK]).invoke(CALL).tool_calls[0]["name"] == "clock"


@check
def langchain_requires_a_tool() -> None:
    assert langchain().bind_tools([CLOCK], tool_choice="clock").invoke(CALL).tool_calls[0]["name"] == "clock"


@check
def langchain_parses_by_schema() -> None:
    assert langchain().with_structured_output(Person).invoke("json") == ANN


@check
def langchain_parses_by_function() -> None:
    parsing = langchain().with_structured_output(Person, method="function_calling")
    assert parsing.invoke('CALL Person {"name": "Ann", "age": 5}') == ANN


@check
def langchain_embeds() -> None:
    embeddings = OpenAIEmbeddings(
        base_url=BASE, api_key=TOKEN, model=VECTORS, check_embedding_ctx_length=False, max_retries=0
    )
    assert len(embeddings.embed_query("a")) == 3


def instructs(mode: str) -> None:
    client = instructor.from_openai(
        openai.OpenAI(base_url=BASE, api_key=TOKEN, max_retries=0), mode=getattr(instructor.Mode, mode)
    )
    prompt = 'CALL Person {"name": "Ann", "age": 5}' if "TOOLS" in mode else "json"
    made = client.chat.completions.create(model=MODEL, response_model=Person, max_retries=0, messages=user(prompt))
    assert (made.name, made.age) == ("Ann", 5)


for _mode in ("TOOLS", "TOOLS_STRICT", "JSON", "JSON_SCHEMA"):
    found[f"instructor_{_mode.lower()}"] = lambda mode=_mode: instructs(mode)


@check
def llm_asks_calls_parses_and_goes_on() -> None:
    with tempfile.TemporaryDirectory() as home:
        model = {"model_id": "cb", "model_name": "agent/clerk", "api_base": BASE, "api_key_name": "cb"}
        model |= {"supports_tools": True, "supports_schema": True}
        Path(home, "extra-openai-models.yaml").write_text(json.dumps([model]))
        Path(home, "keys.json").write_text(json.dumps({"cb": TOKEN}))
        program = str(Path(sys.executable).parent / "llm")

        def run(*words: str) -> str:
            environ = {**os.environ, "LLM_USER_PATH": home}
            done = subprocess.run([program, *words], env=environ, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        assert run("-m", "cb", "hi there") == "echo: hi there"
        assert "done: " in run("-m", "cb", "-T", "llm_version", "--td", "CALL llm_version {}")
        assert run("-m", "cb", "--schema", "name, age int", "json")
        assert run("-c", "and now?") == "echo: and now?"


if __name__ == "__main__":
    print_outcomes()
