"""A small MCP server over stdio, both eras, that can be told to misbehave. Standard library only; starts in ~50 ms.

    python -S scripted.py [flags]

Which eras it speaks (default: both):
    --modern              2026-07-28 only: `initialize` is refused
    --legacy              up to 2025-11-25 only: `server/discover` is refused
    --revision R          what it answers to `initialize` instead of the client's own version
    --versions A,B        what `server/discover` lists
    --refuse              refuses all but `--versions`, which it lists, with -32022

How it starts:
    --complain TEXT       writes that to stderr
    --exit N              then exits with that status, before it reads anything
    --slow-start S        sleeps before it reads
    --never               reads, never answers
    --discover silent|exit|late   what `server/discover` does in a legacy server: no answer, exit, answer after 0.3 s
    --junk N              writes N lines that are no messages to stdout
    --ignore-eof          goes on when its input ends (SIGTERM is ignored as well with `--deaf`)
    --grandchild          starts `sleep 300`, which outlives it; its pid goes to $GRANDCHILD
    --plain               has no capabilities but tools
    --many N              lists N more tools, 100 on a page

Each start writes its pid as a line to $STARTS, if that is set.

Tools: echo{text} add{a,b} slow{seconds, stubborn} env{name} pid{} cwd{} count{} (calls so far in this process)
    ask{question} (elicitation; its text is the answer as JSON) sample{text} roots{} progress{steps} log{text}
    change{} (tools/list_changed) big{bytes} die{status, words} fail{} (isError) refuse{} (a JSON-RPC error)
    seen{} (the messages so far) unask{} (a question taken back) deafen{} (closes its input and lives on)
    visit{times} (refused with -32042 so many times, until two pages are opened)
    and broken output: half{} closes{} long{bytes} endless{begin} junk{bytes} batch{text} utf8{} odd{how}
    flood{bytes} (stderr) late{id}
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"
parser = argparse.ArgumentParser()
for flag in ("modern", "legacy", "refuse", "never", "ignore-eof", "deaf", "grandchild", "plain"):
    parser.add_argument(f"--{flag}", action="store_true")
parser.add_argument("--revision", default="")
parser.add_argument("--versions", default=MODERN)
parser.add_argument("--complain", default="")
parser.add_argument("--exit", type=int)
parser.add_argument("--slow-start", type=float, default=0.0)
parser.add_argument("--discover", choices=("silent", "exit", "late"))
parser.add_argument("--junk", type=int, default=0)
parser.add_argument("--many", type=int, default=0)

SCHEMAS = {
    "echo": {"text": "string"},
    "add": {"a": "number", "b": "number"},
    "slow": {"seconds": "number"},
    "env": {"name": "string"},
    "ask": {"question": "string"},
    "sample": {"text": "string"},
    "progress": {"steps": "integer"},
    "log": {"text": "string"},
    "big": {"bytes": "integer"},
    "long": {"bytes": "integer"},
    "junk": {"bytes": "integer"},
    "endless": {"begin": "string"},
    "flood": {"bytes": "integer"},
    "batch": {"text": "string"},
    "visit": {"times": "integer"},
}
BARE = (
    "pid",
    "cwd",
    "count",
    "roots",
    "change",
    "die",
    "fail",
    "refuse",
    "seen",
    "unask",
    "half",
    "closes",
    "utf8",
    "late",
    "deafen",
)
FORM = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"listChanged": True, "subscribe": True},
    "prompts": {},
    "completions": {},
    "logging": {},
}


class Refused(Exception):
    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Server:
    def __init__(self, flags: argparse.Namespace) -> None:
        self.flags = flags
        self.lock = threading.Lock()
        self.seen: list[dict] = []
        self.count = 0
        self.asked = 0
        self.answers: dict[str, dict] = {}
        self.answered = threading.Condition()
        self.cancelled: set = set()
        self.listening: dict = {}  # id of a `subscriptions/listen` -> its filter
        self.more = 0
        self.visits = 0

    # --- the wire ---------------------------------------------------------------------------------------------

    def raw(self, data: bytes) -> None:
        with self.lock:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]

    def send(self, message: dict) -> None:
        self.raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def notify(self, method: str, params: dict) -> None:
        self.send({"method": method, "params": params})

    def request(self, method: str, params: dict) -> dict:
        """Ask the client and wait for its answer (up to 2025-11-25)."""
        with self.answered:
            self.asked += 1
            id = f"server-{self.asked}"
        self.send({"id": id, "method": method, "params": params})
        with self.answered:
            self.answered.wait_for(lambda: id in self.answers)
            answer = self.answers.pop(id)
        if "error" in answer:
            raise Refused(answer["error"]["code"], "the client refused: " + answer["error"]["message"])
        return answer["result"]

    def serve(self) -> None:
        for line in sys.stdin.buffer:
            message = json.loads(line)
            self.seen.append({key: message[key] for key in ("id", "method", "params") if key in message})
            if self.flags.never:
                continue
            if "method" not in message:
                with self.answered:
                    self.answers[message["id"]] = message
                    self.answered.notify_all()
            elif "id" not in message:
                self.told(message["method"], message.get("params") or {})
            elif message["method"] == "tools/call" and message["params"]["name"] in ("slow", "ask", "sample", "roots"):
                threading.Thread(target=self.answer, args=(message,), daemon=True).start()
            else:
                self.answer(message)

    def told(self, method: str, params: dict) -> None:
        if method == "notifications/cancelled":
            self.cancelled.add(params["requestId"])
            self.listening.pop(params["requestId"], None)

    def answer(self, message: dict) -> None:
        id, method, params = message["id"], message["method"], message.get("params") or {}
        try:
            result = self.result(id, method, params)
        except Refused as refused:
            self.send({"id": id, "error": refused.error})
            return
        if result is not None:
            modern = META + "protocolVersion" in (params.get("_meta") or {})
            self.send({"id": id, "result": {"resultType": "complete", **result} if modern else result})

    # --- methods ----------------------------------------------------------------------------------------------

    def result(self, id: object, method: str, params: dict) -> dict | None:
        flags = self.flags
        versions = flags.versions.split(",")
        if (
            flags.refuse
            and method in ("server/discover", "initialize")
            and params.get("protocolVersion") not in versions
        ):
            raise Refused(-32022, "unsupported protocol version", {"supported": versions})
        if method == "server/discover":
            return self.discover()
        if method == "initialize":
            if flags.modern:
                raise Refused(-32601, "Method not found")
            about = {"serverInfo": {"name": "scripted", "version": "1.0"}, "instructions": "Be kind."}
            version = flags.revision or params["protocolVersion"]
            return {"protocolVersion": version, "capabilities": self.capabilities(), **about}
        if method == "subscriptions/listen":
            self.listening[id] = params["notifications"]
            meta = {META + "subscriptionId": id}
            acknowledged = {"notifications": params["notifications"], "_meta": meta}
            self.notify("notifications/subscriptions/acknowledged", acknowledged)
            return None
        if method == "tools/call":
            return self.call(id, params)
        found = self.listed(method, params)
        if found is None:
            raise Refused(-32601, "Method not found")
        return found

    def discover(self) -> dict | None:
        how = self.flags.discover
        if how == "silent":
            return None
        if how == "exit":
            os._exit(3)
        if how == "late":
            time.sleep(0.3)
        if self.flags.legacy:
            raise Refused(-32601, "Method not found")
        return {
            "supportedVersions": self.flags.versions.split(","),
            "capabilities": self.capabilities(),
            "instructions": "Be kind.",
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {META + "serverInfo": {"name": "scripted", "version": "1.0"}},
        }

    def capabilities(self) -> dict:
        return {"tools": {}} if self.flags.plain else CAPABILITIES

    def listed(self, method: str, params: dict) -> dict | None:
        if method == "tools/list":
            return self.tools(int(params.get("cursor") or 0))
        if method == "resources/list":
            return {"resources": [{"uri": "memo://one", "name": "one", "mimeType": "text/plain"}]}
        if method == "resources/templates/list":
            return {"resourceTemplates": [{"uriTemplate": "memo://{name}", "name": "memo"}]}
        if method == "resources/read":
            return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": f"about {params['uri']}"}]}
        if method == "prompts/list":
            return {"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": True}]}]}
        if method == "prompts/get":
            text = f"Greet {params['arguments']['who']}."
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
        if method == "completion/complete":
            return {"completion": {"values": [params["argument"]["value"] + "!"], "total": 1}}
        if method in ("ping", "logging/setLevel", "resources/subscribe"):
            return {}
        return None

    def tools(self, start: int) -> dict:
        tools = [
            {
                "name": name,
                "description": f"The tool {name}.",
                "inputSchema": {
                    "type": "object",
                    "properties": {key: {"type": kind} for key, kind in SCHEMAS.get(name, {}).items()},
                    "required": list(SCHEMAS.get(name, {})),
                },
                "annotations": {"readOnlyHint": name == "echo", "destructiveHint": name == "die"},
            }
            for name in (*SCHEMAS, *BARE)
        ]
        tools += [{"name": f"more_{n}", "inputSchema": {"type": "object"}} for n in range(self.flags.many + self.more)]
        page: dict = {"tools": tools[start : start + 100]}
        if len(tools) > start + 100:
            page["nextCursor"] = str(start + 100)
        return page

    # --- tools ------------------------------------------------------------------------------------------------

    def call(self, id: object, params: dict) -> dict | None:
        self.count += 1
        name, given = params["name"], params.get("arguments") or {}
        tool = getattr(self, f"tool_{name}", None)
        if tool is None:
            raise Refused(-32602, f"Unknown tool: {name}")
        said = tool(given, id, params)
        if said is None or isinstance(said, dict):
            return said
        return {"content": [{"type": "text", "text": said if isinstance(said, str) else json.dumps(said)}]}

    def tool_echo(self, given: dict, *_: object) -> object:
        return given["text"]

    def tool_add(self, given: dict, *_: object) -> object:
        total = given["a"] + given["b"]
        return {"content": [{"type": "text", "text": str(total)}], "structuredContent": {"sum": total}}

    def tool_slow(self, given: dict, id: object, _: object) -> object:
        """Wait for so long, or until there is a file."""
        until = time.monotonic() + given["seconds"]
        while time.monotonic() < until and not ("file" in given and Path(given["file"]).exists()):
            time.sleep(0.01)
            if id in self.cancelled and not given.get("stubborn"):
                return None
        return "slept"

    def tool_env(self, given: dict, *_: object) -> object:
        return os.environ.get(given["name"]) or ""

    def tool_pid(self, *_: object) -> object:
        return str(os.getpid())

    def tool_cwd(self, *_: object) -> object:
        return str(Path.cwd())

    def tool_count(self, *_: object) -> object:
        return str(self.count)

    def tool_seen(self, *_: object) -> object:
        return self.seen

    def tool_ask(self, given: dict, _: object, params: dict) -> object:
        ask = {"mode": "form", "message": given["question"], "requestedSchema": FORM}
        return self.from_client("elicitation/create", ask, params, json.dumps)

    def tool_unask(self, *_: object) -> object:
        """A question that is taken back (up to 2025-11-25)."""
        self.send(
            {"id": "unasked", "method": "elicitation/create", "params": {"message": "?", "requestedSchema": FORM}}
        )
        time.sleep(0.1)
        self.notify("notifications/cancelled", {"requestId": "unasked"})
        return "taken back"

    def tool_sample(self, given: dict, _: object, params: dict) -> object:
        messages = [{"role": "user", "content": {"type": "text", "text": given["text"]}}]
        ask = {"messages": messages, "maxTokens": 100}
        return self.from_client("sampling/createMessage", ask, params, lambda answer: answer["content"]["text"])

    def tool_roots(self, _: dict, __: object, params: dict) -> object:
        return self.from_client("roots/list", {}, params, lambda answer: answer["roots"])

    def from_client(self, method: str, ask: dict, params: dict, told: object) -> object:
        """What the client says to it: by a request of ours, or by `input_required` and being called again."""
        if META + "protocolVersion" not in (params.get("_meta") or {}):
            return told(self.request(method, ask))
        if "inputResponses" in params:
            if params.get("requestState") != "opaque: é {}":
                raise Refused(-32602, "requestState was changed")
            return told(params["inputResponses"]["q1"])
        wanted = {"q1": {"method": method, "params": ask}}
        return {"resultType": "input_required", "inputRequests": wanted, "requestState": "opaque: é {}"}

    def tool_progress(self, given: dict, _: object, params: dict) -> object:
        token = (params.get("_meta") or {}).get("progressToken")
        for step in range(given["steps"]):
            if token is not None:
                told = {
                    "progressToken": token,
                    "progress": step + 1,
                    "total": given["steps"],
                    "message": f"step {step}",
                }
                self.notify("notifications/progress", told)
        return "done"

    def tool_log(self, given: dict, *_: object) -> object:
        self.notify("notifications/message", {"level": "info", "logger": "scripted", "data": given["text"]})
        return "logged"

    def tool_change(self, *_: object) -> object:
        self.more += 1
        if not self.listening:
            self.notify("notifications/tools/list_changed", {})
        for id, wanted in self.listening.items():
            if wanted.get("toolsListChanged"):
                self.notify("notifications/tools/list_changed", {"_meta": {META + "subscriptionId": id}})
        return "changed"

    def tool_big(self, given: dict, *_: object) -> object:
        return "x" * given["bytes"]

    def tool_die(self, given: dict, *_: object) -> object:
        sys.stderr.write(given.get("words", "I am dying") + "\n")
        sys.stderr.flush()
        os._exit(given.get("status", 3))

    def tool_fail(self, *_: object) -> object:
        return {"content": [{"type": "text", "text": "it failed"}], "isError": True}

    def tool_refuse(self, *_: object) -> object:
        raise Refused(-32000, "refused on principle", {"why": "principle"})

    def tool_visit(self, given: dict, *_: object) -> object:
        self.visits += 1
        if self.visits <= given["times"]:
            pages = [{"mode": "url", "message": "Sign in", "url": f"https://p{n}.example/", "elicitationId": f"{n}"}
                     for n in (1, 2)]  # fmt: skip
            raise Refused(-32042, "sign in first", {"elicitations": pages})
        return "signed in"

    # --- broken output ------------------------------------------------------------------------------------------

    def tool_deafen(self, _: dict, id: object, __: object) -> None:
        os.close(0)
        self.send({"id": id, "result": {"content": [{"type": "text", "text": "deaf"}]}})
        time.sleep(300)

    def tool_half(self, *_: object) -> object:
        self.raw(b'{"jsonrpc": "2.0", "id": ')
        time.sleep(300)
        return None

    def tool_closes(self, *_: object) -> object:
        os.close(1)
        time.sleep(300)
        return None

    def tool_long(self, given: dict, id: object, _: object) -> object:
        self.raw(b'{"jsonrpc": "2.0", "id": %s, "result": {"text": "' % json.dumps(id).encode())
        for _each in range(given["bytes"] // 65536):
            self.raw(b"x" * 65536)
        self.raw(b'"}}\n')
        return None

    def tool_endless(self, given: dict, *_: object) -> object:
        self.raw(given["begin"].encode())
        while True:
            self.raw(b"x" * 65536)

    def tool_junk(self, given: dict, *_: object) -> object:
        line = b"not a message " * 70 + b"\n"
        for _each in range(given["bytes"] // len(line) + 1):
            self.raw(line)
        return "junk written"

    def tool_flood(self, given: dict, *_: object) -> object:
        for _each in range(given["bytes"] // 65536 + 1):
            os.write(2, b"e" * 65535 + b"\n")
        return "flooded"

    def tool_batch(self, given: dict, id: object, _: object) -> object:
        result = {"content": [{"type": "text", "text": given["text"]}]}
        log = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "in a batch"}}
        self.raw(json.dumps([log, {"jsonrpc": "2.0", "id": id, "result": result}]).encode() + b"\n")
        return None

    def tool_odd(self, given: dict, id: object, __: object) -> object:
        """An answer that is JSON at first sight only: bytes that are no UTF-8, or thousands of lists in each other."""
        depth = 200_000
        value = b'"\xff\xfe"' if given["how"] == "bytes" else b"[" * depth + b"]" * depth
        self.raw(b'{"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": ' + value + b"}}\n")
        self.raw(b'{"jsonrpc": "2.0", "id": %d, "result": {"content": ' % id + value + b"}}\n")
        return None

    def tool_utf8(self, _: dict, id: object, __: object) -> object:
        result = {"content": [{"type": "text", "text": "žluťoučký kůň 🐎"}]}
        line = json.dumps({"jsonrpc": "2.0", "id": id, "result": result}, ensure_ascii=False).encode() + b"\n"
        for at in range(len(line)):
            self.raw(line[at : at + 1])
            if line[at] >= 0x80:
                time.sleep(0.002)  # so that the reader sees half a character
        return None

    def tool_late(self, given: dict, *_: object) -> object:
        """An answer to a request that nobody waits for, and progress of another."""
        self.notify("notifications/progress", {"progressToken": 999_998, "progress": 1})
        self.send({"id": given.get("id", 999_999), "result": {}})
        return "late"


def main() -> None:
    flags = parser.parse_args()
    if path := os.environ.get("STARTS"):
        with Path(path).open("a", encoding="utf-8") as starts:
            starts.write(f"{os.getpid()}\n")
    if flags.deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if flags.complain:
        print(flags.complain, file=sys.stderr, flush=True)
    if flags.exit is not None:
        sys.exit(flags.exit)
    if flags.grandchild:
        child = subprocess.Popen(["sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL)
        if path := os.environ.get("GRANDCHILD"):
            Path(path).write_text(str(child.pid))
    time.sleep(flags.slow_start)
    server = Server(flags)
    for number in range(flags.junk):
        server.raw(b"Welcome! line %d\n" % number)
    server.serve()
    while flags.ignore_eof:
        time.sleep(1)
    os._exit(0)  # threads that still sleep don't matter


if __name__ == "__main__":
    main()
