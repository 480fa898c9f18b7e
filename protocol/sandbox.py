"""Sandbox rules of processes that agents start, in files and flags.

    sandbox: workspace                # read-only, workspace, open or off
    sandbox:
      profile: workspace
      write: [~/.cache/uv, build]     # further directories that may be written
      hide: [~/notes]                 # further paths that can't be read
      network: [api.github.com, "*.pypi.org"]    # or "on", "off", ask
      env: [OPENWEATHER_API_KEY]      # variables handed over although they look like secrets

The user's `config.yaml` sets the rules for all processes, and under `tools` and `servers` by name. The file of an
agent, and a node of a graph, can restrict them (`sandbox: read-only`), and never extend them.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Profile: TypeAlias = Literal["read-only", "workspace", "open", "off"]
PROFILES: tuple[Profile, ...] = ("read-only", "workspace", "open", "off")
"""Profiles, strictest first."""

Host: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^((\*\.)?[\w-]+(\.[\w-]+)*\.?|\*|\[[0-9a-fA-F:.]+\])(:\d{1,5})?$",
        extra={"shape": "a host: a name, `*.name` or an address (IPv6 in brackets), perhaps with `:port`"},
    ),
]

Network: TypeAlias = Literal["off", "on", "ask"] | tuple[Host, ...]
"""Network access. `off`: none. `on`: all. `ask`: the user is asked about each host. A list: as `ask`, except for the
listed hosts.
"""


class SandboxRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sandbox settings of one source; None and empty values set nothing."""

    profile: Annotated[
        Profile | None,
        Meta(
            description="`read-only`: nothing is written but a temporary directory. `workspace`: below the working "
            "directory and `write`. `open`: everything; only the kernel's interfaces are closed. `off`: no sandbox."
        ),
    ] = None
    write: Annotated[
        tuple[str, ...],
        Meta(description="Directories and files that may be written in addition to the working directory."),
    ] = ()
    hide: Annotated[
        tuple[str, ...], Meta(description="Paths that can't be read, in addition to those of secrets.")
    ] = ()
    show: Annotated[tuple[str, ...], Meta(description="Paths of secrets that may be read nevertheless.")] = ()
    network: Annotated[
        Network | None,
        Meta(
            description="`off`: none. `on`: all of it. A list of hosts (`api.github.com`, `*.pypi.org`, "
            "`localhost:8080`): those; the user is asked about others. `ask`: an empty list, as tools and code have it "
            "by default; MCP servers have `on`."
        ),
    ] = None
    env: Annotated[
        tuple[str, ...],
        Meta(
            description="Environment variables passed on although their names look like secrets; `*` matches any text."
        ),
    ] = ()


class OwnSandbox(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sandbox settings of an agent's file or of a node, for its own processes; they can only restrict."""

    profile: Annotated[
        Literal["read-only", "workspace", "open"] | None,
        Meta(description="Profile; the stricter one of this and the user's applies."),
    ] = None
    hide: Annotated[tuple[str, ...], Meta(description="Paths that can't be read, in addition to the user's.")] = ()
    network: Annotated[Literal["off"] | None, Meta(description="`off`: no network, not even for MCP servers.")] = None


Own: TypeAlias = Literal["read-only", "workspace", "open"] | OwnSandbox
OWN = Meta(description="Permissions of its processes: a profile, or a block. They can only restrict those of the user.")


class UserSandbox(SandboxRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block of `config.yaml`."""

    tools: Annotated[
        dict[str, SandboxRules],
        Meta(
            description="By name of a tool; names may be patterns. Its profile and network count; its paths are added."
        ),
    ] = {}
    servers: Annotated[dict[str, SandboxRules], Meta(description="By name of an MCP server; the same.")] = {}
