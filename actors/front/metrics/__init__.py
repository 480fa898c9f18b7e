"""A server's metrics for Prometheus. Begin with `metrics`.

Requests are counted by the middleware, websocket frames by the control channel, what runs do by the event stream
(`work`), what models cost with the book (`spending`), and what is a state (actors, questions, the pool of MCP
servers) is read at each scrape.
Labels hold words from files and from the table of routes, and each label a bounded number of them: never an
id of a run, a session or a path that a client has made up.
"""

from __future__ import annotations

from .metrics import CONTENT_TYPE, MOST_NAMES, OTHER, Metrics

__all__ = ["CONTENT_TYPE", "MOST_NAMES", "OTHER", "Metrics"]
