"""MCP servers of running processes (`callboard mcp status`, `reload`): all Callboard processes of this user answer.

This module starts no server and, unlike `.mcp`, imports no code that does: that would take half of the command's time.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import trio

from ...actors.io.directories import cache_dir, socket_dir
from ...actors.work.mcp.pool.status import Counters, ask_all
from ...protocol.control.resources import ServerStatus
from ...protocol.decoding import convert
from ...protocol.relative_time import age
from ..render.text import columns, counted, json_object, one_line, safe

_NO_PROCESS = "no running Callboard process uses MCP servers\n"
_MEGABYTE = 1_000_000


def show_status(*, as_json: bool) -> str:
    """Return the processes that have servers, as a table or as JSON."""
    answers = [answer for answer in _ask_processes({"ask": "status"}) if "ended" not in answer]
    if as_json:
        return json_object(processes=answers)
    return "\n".join(_process(answer) for answer in answers) or _NO_PROCESS


def reload_servers(name: str | None, *, as_json: bool) -> int:
    """Make all processes restart the server, or all servers without a name; return 1 if a process reports an error.

    Waits for the calls under way; stderr has their number for each process.
    """
    # The reload answers only when these calls have ended, and the command would be silent until then.
    for answer in _ask_processes({"ask": "status"}):
        calls = sum(each["pending"] for each in answer.get("servers", ()) if name in (None, each["name"]))
        if calls:
            under_way = f"{counted(calls, 'call')} under way of process {answer['pid']}"
            sys.stderr.write(f"callboard: waiting for {under_way}{_command(answer['pid'])}\n")
    sys.stderr.flush()
    answers = _ask_processes({"ask": "reload", "server": name})
    if as_json:
        sys.stdout.write(json_object(processes=answers))
    else:
        _print_reloads(answers)
    return 1 if any("error" in answer for answer in answers) else 0


def _print_reloads(answers: list[dict[str, Any]]) -> None:
    if not answers:
        sys.stdout.write(_NO_PROCESS)
    for answer in answers:
        pid = answer["pid"]
        if "error" in answer:
            sys.stderr.write(f"callboard: process {pid}: {_answer_error(answer)}\n")
        elif "ended" in answer:
            sys.stderr.write(f"callboard: process {pid} ended, and its servers with it\n")
        else:
            names = ", ".join(answer["reloaded"])
            sys.stdout.write(f"process {pid}: {'restarted: ' + safe(names) if names else 'nothing to restart'}\n")


def _ask_processes(request: dict[str, Any]) -> list[dict[str, Any]]:
    return trio.run(ask_all, socket_dir(os.environ, cache_dir(os.environ)), request)


def _process(answer: dict[str, Any]) -> str:
    head = f"process {answer['pid']}{_command(answer['pid'])}\n"
    if "error" in answer:
        return f"{head}  {_answer_error(answer)}\n"
    servers = convert(answer["servers"], list[ServerStatus])
    count = convert(answer["counters"], Counters)
    rows = columns([_status_row(server) for server in servers if server.state != "cold" or server.calls])
    lines = [*rows, *_errors(servers), f"  {_counters_text(count)}"]
    return head + "".join(safe(line) + "\n" for line in lines)


def _answer_error(answer: dict[str, Any]) -> str:
    return safe(str(answer["error"]).removeprefix(f"process {answer['pid']} "))


def _status_row(server: ServerStatus) -> list[str]:
    what = [f"up {age(server.uptime)}"] if server.uptime else []
    if server.state == "down":
        what.append(f"next try in {age(server.retry_seconds)}")
    if server.leases:
        what.append(counted(server.leases, "lease"))
    if server.pending:
        what.append(f"{counted(server.pending, 'request')} under way")
    if server.calls:
        what.append(counted(server.calls, "call") + (f" ({server.errors} failed)" if server.errors else ""))
    if server.restarts:
        what.append(counted(server.restarts, "restart"))
    if server.rss is not None:
        what.append(f"{server.rss // _MEGABYTE} MB")
    by = f"{server.share}: {one_line(server.by, 60)}" if server.by else server.share
    return [server.name, server.state, by, f"pid {server.pid}" if server.pid else "", ", ".join(what)]


def _errors(servers: list[ServerStatus]) -> list[str]:
    return [
        f"  {server.name}: last error: {one_line(server.last_error, 200)}" for server in servers if server.last_error
    ]


def _counters_text(count: Counters) -> str:
    waited = f"waited for {counted(count.acquire_miss, 'time')}, {count.acquire_seconds:.1f}s in all"
    shared = counted(count.acquire_active_hit, "time")
    told = {
        f"{count.spawned} started": count.spawned,
        waited: count.acquire_miss,
        f"shared {shared}": count.acquire_active_hit,
        f"reused {counted(count.acquire_idle_hit, 'time')}": count.acquire_idle_hit,
        f"{count.idle_evicted} ended unused": count.idle_evicted,
        f"{count.lru_evicted} ended to make room": count.lru_evicted,
        f"{count.lost} lost": count.lost,
        f"{count.failed_starts} failed to start": count.failed_starts,
        f"{counted(count.health_ok, 'ping')} answered": count.health_ok,
        f"{counted(count.health_failed, 'ping')} not answered": count.health_failed,
        counted(count.reloads, "reload"): count.reloads,
    }
    return "servers: " + (", ".join(text for text, number in told.items() if number) or "no server was used")


def _command(pid: int) -> str:
    """Return the command line of a process in parentheses; "" if it can't be read."""
    import psutil

    try:
        words = psutil.Process(pid).cmdline()
    except psutil.Error:
        return ""
    names = [Path(words[0]).name, *words[1:]] if words else []
    return f" ({one_line(' '.join(names), 80)})" if names else ""
