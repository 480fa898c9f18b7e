"""Events of what runs share: MCP servers, knowledge bases."""

from __future__ import annotations

from ..kernel.events import EventData

# --- MCP servers -----------------------------------------------------------------------------------------


class McpServerStarting(EventData, frozen=True, kw_only=True):
    """An MCP server is started: in `wait` seconds, if it failed before. Told as `mcp.started` is."""

    kind = "mcp.starting"
    server: str
    wait: float = 0.0


class McpServerStarted(EventData, frozen=True, kw_only=True):
    """An MCP server was started and speaks revision `protocol`. Told by its actor and on the run that wanted it."""

    kind = "mcp.started"
    server: str
    version: str
    protocol: str
    seconds: float
    tools: int


class McpServerStopped(EventData, frozen=True, kw_only=True):
    """An MCP server has ended: as it should (`error` is empty), or by itself."""

    kind = "mcp.stopped"
    server: str
    error: str = ""


class McpServerFailed(EventData, frozen=True, kw_only=True):
    """An MCP server could not be started."""

    kind = "mcp.failed"
    server: str
    error: str


# --- knowledge bases --------------------------------------------------------------------------------------


class KnowledgeBuilding(EventData, frozen=True, kw_only=True):
    """How far the building of a knowledge base is; told a few times a second at most.

    `phase` is `pull` (the model's weights come: bytes), `read` (sources), `embed` or `index` (chunks); `total` is None
    where nobody knows it.
    """

    kind = "knowledge.building"
    what: str
    phase: str
    done: int
    total: int | None = None
    seconds_left: float | None = None


class KnowledgeBuilt(EventData, frozen=True, kw_only=True):
    """A knowledge base is up to date. `added` to `unreadable` count its sources, `embedded` and `chunks` its chunks."""

    kind = "knowledge.built"
    what: str
    added: int
    changed: int
    removed: int
    unchanged: int
    unreadable: int
    embedded: int
    chunks: int
    seconds: float


class KnowledgeRetrieved(EventData, frozen=True, kw_only=True):
    """Something was looked up. `query` is the length of the query in characters, not its text."""

    kind = "knowledge.retrieved"
    what: str
    query: int
    chunks: int
    sources: tuple[str, ...]
    seconds: float
