"""Any address of an OpenAI-compatible server is understood, and what stands in the way is named."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from callboard.actors.runs.setup.address import Why, bases_of, look_up, offer_of

LIST = {"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "text-embedding-3-small"}]}
Answers = Callable[[str, str], tuple[int, object]]


@contextmanager
def server(answers: Answers) -> Iterator[str]:
    """A server on loopback, which answers a path and a key; its host and port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = answers(self.path, self.headers.get("authorization", ""))
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(code)
            self.send_header("location", "https://elsewhere.example/v1")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def at_v1(path: str, _: str) -> tuple[int, object]:
    return (200, LIST) if path == "/v1/models" else (404, {})


@pytest.mark.parametrize(
    "text",
    ["{}", "http://{}", "http://{}/v1", "http://{}/v1/", " {}/v1/models ", "http://{}/v1/chat/completions", "'{}'"],
)
def test_whatever_is_copied_leads_to_the_base_and_its_models(text: str) -> None:
    with server(at_v1) as host:
        found = look_up(text.format(host))
    assert (found.why, found.base, found.models) == (None, f"http://{host}/v1", ("qwen3:8b",))


def test_a_server_without_v1_and_below_a_path_is_found() -> None:
    with server(lambda path, _: (200, LIST) if path == "/llm/models" else (404, {})) as host:
        assert look_up(f"{host}/llm").base == f"http://{host}/llm"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {}), "unauthorized"),
        ((403, {}), "unauthorized"),
        ((404, {}), "not_found"),
        ((500, {}), "failing"),
        ((302, {}), "redirect"),
        ((200, b"<html>"), "no_list"),
        ((200, {"data": "x"}), "no_list"),
        ((200, {"data": []}), "no_models"),
    ],
)
def test_what_a_server_answers_instead_is_named(answer: tuple[int, object], why: Why) -> None:
    with server(lambda *_: answer) as host:
        found = look_up(host)
    assert found.why == why
    assert host in found.said


def test_a_key_opens_the_list_and_a_wrong_one_is_said_to_be_wrong() -> None:
    with server(lambda _, key: (200, LIST) if key == "Bearer right" else (401, {})) as host:
        assert look_up(host, "right").why is None
        assert look_up(host, "wrong").why == "unauthorized"


def test_where_nothing_answers_the_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert look_up(f"127.0.0.1:{taken.getsockname()[1]}").why == "refused"

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert look_up("http://no-such-host.invalid/v1").why == "dns"


@pytest.mark.parametrize(("said", "why"), [(b"SSH-2.0-x\r\n", "not_http"), (b"", "not_http")])
def test_what_speaks_no_http_or_no_tls_is_named(said: bytes, why: Why) -> None:
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1)
                connection.sendall(said)

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    try:
        assert look_up(f"http://{address}/v1").why == why
        assert look_up(f"https://{address}/v1").why in ("tls", "not_http")
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_a_server_that_is_silent_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert look_up(f"http://127.0.0.1:{silent.getsockname()[1]}/v1", within=0.05).why == "timeout"


@pytest.mark.parametrize(
    "text", ["", "/v1", "ftp://host/v1", "http://a b/v1", "http://me:secret@host/v1", "http://:80", "h:x"]
)
def test_what_is_no_address_is_refused_unasked(text: str) -> None:
    assert look_up(text).why == "address"
    assert "secret" not in look_up(text).said


def test_bases_of_a_name_are_guessed_by_where_it_is() -> None:
    assert bases_of("llm.example.com") == [
        "https://llm.example.com/v1",
        "https://llm.example.com",
        "http://llm.example.com/v1",
        "http://llm.example.com",
    ]
    found = bases_of("localhost:8000/v1")
    assert isinstance(found, list)
    assert found[0] == "http://localhost:8000/v1"


def test_a_client_gets_a_name_of_its_own_and_one_that_is_there_is_used() -> None:
    with server(at_v1) as host:
        found = look_up(host)
        port = host.partition(":")[2]
        assert offer_of(found, {}).model == f"server-{port}:qwen3:8b"
        assert offer_of(found, {f"server-{port}": "http://other"}).client.name == f"server-{port}-2"
        assert offer_of(found, {"mine": found.base}).client.name == "mine"
