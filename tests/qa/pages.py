"""Pages on a loopback port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread


@contextmanager
def pages(texts: Mapping[str, str]) -> Iterator[str]:
    """A server of these pages, by path; its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in texts else 404)
            self.send_header("content-type", "text/html" if "<html" in texts.get(self.path, "") else "text/plain")
            self.end_headers()
            self.wfile.write(texts.get(self.path, "").encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
