"""What the processes that agents start may do, as files and flags say it.

    sandbox: workspace                # read-only, workspace, open or off
    sandbox:
      profile: workspace
      write: [~/.cache/uv, build]     # further directories that may be written
      hide: [~/notes]                 # further paths that can't be read
      network: [api.github.com, "*.pypi.org"]    # or "on", "off", ask
      env: [OPENWEATHER_API_KEY]      # variables handed over although they look like secrets

The user's own `config.yaml` says it for all, and under `tools` and `servers` by name. A file of an agent, and a node of
a graph, can narrow that (`sandbox: read-only`), and never widen it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

Profile: TypeAlias = Literal["read-only", "workspace", "open", "off"]
PROFILES: tuple[Profile, ...] = ("read-only", "workspace", "open", "off")
"""The strictest first."""

Host: TypeAlias = Annotated[
    str,
    Meta(
        pattern=r"^((\*\.)?[\w-]+(\.[\w-]+)*\.?|\*|\[[0-9a-fA-F:.]+\])(:\d{1,5})?$",
        extra={"shape": "a host: a name, `*.name` or an address (IPv6 in brackets), perhaps with `:port`"},
    ),
]

Network: TypeAlias = Literal["off", "on", "ask"] | tuple[Host, ...]
"""None; all of it; a person is asked of each host; the same but for the hosts that are named."""


class SandboxRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said in one place; None and empty say nothing."""

    profile: Annotated[
        Profile | None,
        Meta(
            description="`read-only`: nothing is written but a temporary directory. `workspace`: below the working "
            "directory and `write`. `open`: everything; only the kernel's interfaces are closed. `off`: no sandbox."
        ),
    ] = None
    write: Annotated[
        tuple[str, ...],
        Meta(description="Directories and files that may be written beside the working directory."),
    ] = ()
    hide: Annotated[tuple[str, ...], Meta(description="Paths that can't be read, beside those of secrets.")] = ()
    show: Annotated[tuple[str, ...], Meta(description="Paths of secrets that may be read all the same.")] = ()
    network: Annotated[
        Network | None,
        Meta(
            description="`off`: none. `on`: all of it. A list of hosts (`api.github.com`, `*.pypi.org`, "
            "`localhost:8080`): those; a person is asked about others. `ask`: an empty list, as tools and code have it "
            "by default; MCP servers have `on`."
        ),
    ] = None
    env: Annotated[
        tuple[str, ...],
        Meta(description="Variables that are handed over although their names look like secrets; `*`: any text."),
    ] = ()


class OwnSandbox(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a file of an agent, or a node of a graph, says of its own processes: it can only take away."""

    profile: Annotated[
        Literal["read-only", "workspace", "open"] | None,
        Meta(description="As the user's; of the two the stricter one counts."),
    ] = None
    hide: Annotated[tuple[str, ...], Meta(description="Paths that can't be read, beside the user's.")] = ()
    network: Annotated[Literal["off"] | None, Meta(description="`off`: none, not for MCP servers either.")] = None


Own: TypeAlias = Literal["read-only", "workspace", "open"] | OwnSandbox
OWN = Meta(description="What its processes may do: a profile, or a block. It narrows what the user allows.")


class UserSandbox(SandboxRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The block of `config.yaml`."""

    tools: Annotated[
        dict[str, SandboxRules],
        Meta(
            description="By name of a tool; names may be patterns. Its profile and network count; its paths are added."
        ),
    ] = {}
    servers: Annotated[dict[str, SandboxRules], Meta(description="By name of an MCP server; the same.")] = {}
