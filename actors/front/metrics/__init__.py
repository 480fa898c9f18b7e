"""Prometheus metrics of a server. Begin with `metrics.Metrics`.

Sources of the figures:

    requests            the HTTP middleware
    websocket frames    the control channel
    activity of runs    the event stream (`work`)
    cost of models      the usage book (`metrics.Spending`)
    state               read at each scrape: actors, questions, the pool of MCP servers

Label values come from files and from the route table, and each label has a bounded number of them (`work.Names`). Ids
of runs or sessions and paths from clients never become labels: each new one would create a time series. The package
imports `views` and the kernel.
"""

from __future__ import annotations

from .metrics import CONTENT_TYPE, Metrics
from .work import MOST_NAMES, OTHER

__all__ = ["CONTENT_TYPE", "MOST_NAMES", "OTHER", "Metrics"]
