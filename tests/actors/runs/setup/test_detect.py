"""What is found on a machine where nothing is configured."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import PATIENCE

from callboard.actors.runs.setup import detect
from callboard.actors.runs.setup.detect import (
    ModelServer,
    answering,
    facts,
    names_in,
    of_provider,
    offers,
    places,
    providers_by_name,
)
from callboard.actors.runs.setup.needed import needs_setup

OLLAMA = {"models": [{"name": "nomic-embed-text:latest", "model": "x"}, {"name": "llama3.2:latest", "size": 2}]}
LM_STUDIO = {
    "object": "list",
    "data": [
        {"id": "qwen2.5-7b-instruct-1m", "object": "model", "owned_by": "organization_owner"},
        {"id": "text-embedding-nomic-embed-text-v1.5", "object": "model", "owned_by": "organization_owner"},
    ],
}
LLAMA_CPP = {
    "models": [{"name": "/models/gemma.gguf", "model": "/models/gemma.gguf"}],
    "object": "list",
    "data": [{"id": "/models/gemma.gguf", "object": "model", "meta": {"n_ctx_train": 8192}}],
}


@contextmanager
def speaking(answer: bytes | Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that says this to each who comes."""
    listener = socket.create_server(("127.0.0.1", 0))
    done = threading.Event()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                if callable(answer):
                    answer(connection)
                else:
                    connection.recv(65536)
                    connection.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    done.set()
    thread.join(5)


def saying(value: Any, status: str = "200 OK") -> bytes:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b" % (status.encode(), len(body), body)


def server(base: str) -> ModelServer:
    return ModelServer(name="lmstudio", title="LM Studio", type="openai-compatible", base=base)


@pytest.mark.parametrize(
    ("listed", "names"),
    [
        (OLLAMA, ("llama3.2:latest",)),
        (LM_STUDIO, ("qwen2.5-7b-instruct-1m",)),
        (LLAMA_CPP, ("/models/gemma.gguf",)),
        ({"models": []}, ()),
        ({"data": [{"id": 5}, {"id": ""}, {"id": "a\x1b[31m"}, {"id": "a,b"}, "x", {"id": "y"}]}, ("y",)),
        ({"error": "no"}, None),
        ([1], None),
        ({"data": "x"}, None),
    ],
)
def test_names_of_models_as_each_server_lists_them(listed: Any, names: tuple[str, ...] | None) -> None:
    assert names_in(listed) == names


def test_only_a_server_of_models_is_believed() -> None:
    said = [saying(LM_STUDIO), saying(b"<html>hello"), saying({"data": []}, "404 Not Found"), b"220 smtp ready\r\n"]
    with speaking(said[0]) as real, speaking(said[1]) as page, speaking(said[2]) as lacks, speaking(said[3]) as mail:
        found = answering(
            [server(page), server(real), server(lacks), server(mail), server("http://127.0.0.1:1")], within=PATIENCE
        )
    assert [(each.server.base, each.models) for each in found] == [(real, ("qwen2.5-7b-instruct-1m",))]


def test_those_that_say_nothing_cost_one_short_wait_together() -> None:
    waiting = together = 0
    lock = threading.Lock()

    def silent(connection: socket.socket) -> None:
        nonlocal waiting, together
        connection.recv(65536)
        with lock:
            waiting += 1
            together = max(together, waiting)
        connection.recv(1)  # until it is given up
        with lock:
            waiting -= 1

    with ExitStack() as stack:
        them = [server(stack.enter_context(speaking(silent))) for _ in range(20)]
        assert answering(them, within=0.5) == []
        assert together > 1, "they are asked side by side"


def test_one_that_drips_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its bytes comes in time, and the last one never."""
    over = threading.Event()

    def dripping(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not over.wait(0.05):
            connection.sendall(b" ")

    with speaking(dripping) as slow, speaking(saying(LM_STUDIO)) as quick:
        # All time has passed as soon as the quick one, which is waited for first, has answered.
        times = iter((0.0, 0.0))
        monkeypatch.setattr(detect, "time", SimpleNamespace(monotonic=lambda: next(times, 1e9)))
        looking = threading.Thread(
            target=lambda: found.extend(answering([server(quick), server(slow)], within=PATIENCE))
        )
        found: list[Any] = []
        looking.start()
        looking.join(PATIENCE)
        held_up = looking.is_alive()
        over.set()
        looking.join(PATIENCE)
    assert not held_up
    assert [each.server.base for each in found] == [quick]


def test_ollama_is_looked_for_where_its_variable_says() -> None:
    assert places({})[0].base == "http://localhost:11434"
    assert places({"OLLAMA_HOST": "0.0.0.0:99"})[0].base == "http://127.0.0.1:99"
    assert [each.base for each in places({})[1:]] == [f"http://127.0.0.1:{port}/v1" for port in (1234, 8080, 8000)]


def test_keys_come_before_servers_and_each_names_its_variable(tmp_path: Path) -> None:
    environ = {"GROQ_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GOOGLE_API_KEY": "k", "XDG_CACHE_HOME": str(tmp_path)}
    with speaking(saying(LM_STUDIO)) as base:
        found = offers(environ, [server(base)])
    assert [(offer.client.name, offer.key) for offer in found] == [
        ("claude", "ANTHROPIC_API_KEY"),
        ("gemini", "GOOGLE_API_KEY"),
        ("groq", "GROQ_API_KEY"),
        ("lmstudio", ""),
    ]
    assert found[0].model == "claude:claude-sonnet-5"
    assert found[-1].client.api_base == base
    assert not any(part == "k" for offer in found for part in (offer.why, offer.client.api_key))


def test_a_server_that_stands_for_openai_says_which_models_it_has(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path), "OLLAMA_HOST": "127.0.0.1:1"}
    with speaking(saying({"data": [{"id": "mine"}, {"id": "yours"}]})) as base:
        environ["OPENAI_BASE_URL"] = f"{base}/v1"
        own = places(environ)[:1]
        (without_key,) = offers(environ, own)
        (with_key,) = offers(environ | {"OPENAI_API_KEY": "k"}, own)
    assert (without_key.model, without_key.key, without_key.needs_entry) == ("openai:mine", "", False)
    assert (with_key.models, with_key.key) == (("mine", "yours"), "OPENAI_API_KEY")


@pytest.mark.parametrize("name", providers_by_name())
def test_each_provider_has_a_model_to_begin_with_and_knows_more(name: str) -> None:
    offer = of_provider(name, {}, why="")
    assert offer.models
    (known,) = facts(offer, offer.models[:1], {})
    assert (known.input_price is not None) == (name != "deepinfra")
    assert len(set(offer.models)) == len(offer.models)


def test_setup_is_needed_where_neither_a_file_nor_a_variable_says_a_model(tmp_path: Path) -> None:
    assert needs_setup(tmp_path, {})
    assert needs_setup(tmp_path, {"OPENAI_API_KEY": "k"})
    for variable in ("CALLBOARD_MODEL", "LOKI_MODEL", "CALLBOARD_PROVIDER", "LOKI_PLATFORM"):
        assert not needs_setup(tmp_path, {variable: "openai"})
    (tmp_path / "config.yaml").write_text("")
    assert not needs_setup(tmp_path, {})
    assert needs_setup(tmp_path, {"CALLBOARD_CONFIG_FILE": str(tmp_path / "none.yaml")})


def test_whether_it_is_needed_costs_next_to_nothing() -> None:
    program = (
        "import sys\n"
        "from callboard.actors.runs.setup.needed import needs_setup\n"
        "print(sorted({'httpx', 'trio', 'prompt_toolkit', 'rich', 'msgspec'} & sys.modules.keys()))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "httpx" not in told.stdout
    assert "prompt_toolkit" not in told.stdout
    assert "trio" not in told.stdout
