"""A registry of npm and an index of PyPI on this machine, with MCP servers as packages; downloads are counted."""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import tarfile
import textwrap
import threading
import zipfile
from collections.abc import Mapping

from support.scripted_server import scripted_server

SERVER = """
if name == "about":
    return json.dumps({"version": VERSION, "path": os.path.realpath(__file__), "arguments": sys.argv[1:]})
try:
    with open(arguments["path"], arguments.get("mode", "a")) as file:
        return "written" if file.writable() and file.write("x") else file.read()
except OSError as error:
    return str(error)
"""


class Registry:
    """See the module.

    Attributes:
        downloads: file names of packages that were sent, in order.
        url: of npm's registry; `index` is PyPI's.
    """

    def __init__(self) -> None:
        self.downloads: list[str] = []
        self._files: dict[str, bytes] = {}
        self._npm: dict[str, dict[str, dict[str, object]]] = {}
        self._pypi: dict[str, list[str]] = {}
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                kind, body = registry._answer(self.path, counts=self.command == "GET")
                self.send_response(200 if kind else 404)
                self.send_header("content-type", kind or "text/plain")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self.index = f"{self.url}simple/"

    def close(self) -> None:
        """From now on nobody answers."""
        self._server.shutdown()
        self._server.server_close()

    def npm(self, name: str, version: str = "1.0.0", *, scripts: Mapping[str, str] | None = None) -> None:
        """Publish an MCP server with the tools `about` and `write`, as npm's package."""
        manifest = {"name": name, "version": version, "bin": {name: "server.py"}, "scripts": dict(scripts or {})}
        files = {"package.json": json.dumps(manifest), "server.py": f"#!/usr/bin/env python3\n{_program(version)}"}
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for file, text in files.items():
                entry = tarfile.TarInfo(f"package/{file}")
                entry.size, entry.mode = len(text.encode()), 0o755
                archive.addfile(entry, io.BytesIO(text.encode()))
        data = packed.getvalue()
        file = f"{name}-{version}.tgz"
        self._files[file] = data
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
        dist = {"tarball": f"{self.url}files/{file}", "integrity": integrity}
        self._npm.setdefault(name, {})[version] = {**manifest, "dist": dist, "hasInstallScript": bool(scripts)}

    def pypi(self, name: str, version: str = "1.0.0") -> None:
        """Publish the same server as a wheel."""
        module, about = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
        files = {
            f"{module}.py": f"def main():\n{textwrap.indent(_program(version, is_inside=True), '    ')}",
            f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
        }
        files[f"{about}/RECORD"] = "".join(f"{file},,\n" for file in (*files, f"{about}/RECORD"))
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for file, text in files.items():
                archive.writestr(file, text)
        wheel = f"{module}-{version}-py3-none-any.whl"
        self._files[wheel] = packed.getvalue()
        self._pypi.setdefault(name, []).append(wheel)

    def _answer(self, path: str, *, counts: bool) -> tuple[str, bytes]:
        """The content type and the body; "" and nothing for what is not there."""
        path = path.partition("?")[0].partition("#")[0]
        name = path.strip("/").rpartition("/")[2]
        if path.startswith("/files/") and name in self._files:
            if counts:
                self.downloads.append(name)
            return "application/octet-stream", self._files[name]
        if path.startswith("/simple/") and name in self._pypi:
            links = (f'<a href="/files/{wheel}">{wheel}</a>' for wheel in self._pypi[name])
            return "text/html", "\n".join(links).encode()
        if name in self._npm and path == f"/{name}":
            versions = self._npm[name]
            body = {"name": name, "dist-tags": {"latest": max(versions)}, "versions": versions}
            return "application/json", json.dumps(body).encode()
        return "", b""


def _program(version: str, *, is_inside: bool = False) -> str:
    code = scripted_server(SERVER.replace("VERSION", repr(version)), about={}, write={})
    assert not is_inside or "global" not in code
    return code
