"""What `callboard mcp init` writes: an `mcp.json` that explains itself, with one server that works."""

from __future__ import annotations

import os
import shutil

from ..actors.io.directories import config_dir as configured
from ..protocol.errors import UsageError
from .init import write_files

STARTER = """\
// MCP servers: programs, or addresses on the web, that lend tools to your agents. An agent lists those that it may use:
//
//   mcp_servers: [time]              in its config.yaml or graph.yaml
//   callboard ask --tool mcp:time "What time is it in Tokyo?"    (a model that can call tools; small local ones can't)
//
//   callboard mcp list               what this file says
//   callboard mcp test time          start a server, shake hands, and see what it offers
//   callboard mcp call time get_current_time --json '{"timezone": "Asia/Tokyo"}'
//
// Comments and trailing commas may stay. Every key: docs/mcp.md, or callboard schema mcp
{
  "mcpServers": {
    // A program on this machine. It is started when it is first needed, once for all runs of one process.
    // uvx comes with uv (https://docs.astral.sh/uv/) and fetches the program at the first start.
    "time": {
      "command": "uvx",
      "args": ["mcp-server-time"],
      "description": "Time and time zones.",
    },

    // Files below a directory. Tools that say of themselves that they destroy something ask you first.
    "files": {
      "disabled": true,  // remove this line to use it
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/path/to/a/directory"],
      // "tools": {"deny": ["write_*", "edit_*", "move_*"]},   // what agents never see; or "allow": [...]
    },

    // A browser, which agents can't share: each agent gets a process of its own, which ends with it.
    "browser": {
      "disabled": true,
      "command": "npx",
      "args": ["-y", "@playwright/mcp@latest", "--headless"],
      // "env": {"DISPLAY": "${DISPLAY:-:0}"},
      "share": "per-agent",  // pool (the default: all share one), per-run, per-agent, never
    },

    // One on the web. ${NAME} is a variable of the environment, so that no secret stands in this file.
    "github": {
      "disabled": true,
      "url": "https://api.githubcopilot.com/mcp/",
      "headers": {"Authorization": "Bearer ${GITHUB_TOKEN}"},
      "trust": "none",  // ask before every call; hints (the default): before what says it destroys; full: never
    },
  },
}
"""


_LACKS = (
    "uvx was not found on the PATH, and the server 'time' is started by it: install uv (https://docs.astral.sh/uv/),\n"
    "or write a server of your own there\n"
)


def make_mcp_json(config_dir: str | None, *, force: bool) -> str:
    """Writes `mcp.json` into the config directory; what to tell the user.

    Raises:
        UsageError: there is one already, and `force` is not given; or it can't be written.
    """
    base, _ = configured(config_dir, os.environ)
    file, loki = base / "mcp.json", base / "functions" / "mcp.json"
    for there in (file, loki):
        if there.exists() and not force:
            hint = "--force writes a new one over it" if there == file else f"--force writes {file}, which is used then"
            raise UsageError(f"{there} is there already and was left alone; {hint}")
    write_files({file: STARTER.encode()})
    hidden = f"{loki} is no longer used\n" if loki.exists() else ""
    then = "\ncallboard mcp test time\n" if shutil.which("uvx") else _LACKS
    return f"wrote {file}\n{hidden}{then}"
