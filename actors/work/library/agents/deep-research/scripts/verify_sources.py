"""Looks at every page that the report cites: is it there, and was it among the findings?

    Sources: 12 cited; 10 found, 1 broken, 1 not checked.
      broken: https://example.org/gone (404 Not Found)
      not checked: http://10.0.0.7/notes (a private address)
      not in the findings: https://example.org/gone

At most 100 are looked at, 8 at once, all within a minute.
"""

from __future__ import annotations

import json
import queue
import threading
import time

from citations import cited
from graph_state import graph_state
from pages import looked_up

MOST = 100
AT_ONCE = 8
SECONDS = 60.0
SHOWN = 200
"""Characters of an address or of a reason that are told."""


def all_looked_up(urls: list[str]) -> dict[str, tuple[str, str]]:
    """What is with each of them, as far as the time goes."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    done: queue.SimpleQueue[tuple[str, tuple[str, str]]] = queue.SimpleQueue()
    for url in urls:
        waiting.put(url)

    def work() -> None:
        while True:
            try:
                url = waiting.get_nowait()
            except queue.Empty:
                return
            done.put((url, looked_up(url)))

    # Daemons, since a server that says a letter now and then would keep us past our time.
    for _ in range(min(AT_ONCE, len(urls))):
        threading.Thread(target=work, daemon=True).start()
    until = time.monotonic() + SECONDS
    ends = {}
    while len(ends) < len(urls):
        try:
            url, end = done.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        ends[url] = end
    return ends


def summary(report: str, findings: str) -> str:
    """How the citations of a report hold."""
    urls = cited(report)
    if not urls:
        return "Sources: the report cites none."
    ends = all_looked_up(urls[:MOST])
    ends.update((url, ("not checked", "too many")) for url in urls[MOST:])
    ends.update((url, ("not checked", "time was up")) for url in urls if url not in ends)
    kinds = [ends[url][0] for url in urls]
    counts = [f"{kinds.count(kind)} {kind}" for kind in ("found", "broken", "not checked") if kind in kinds]
    lines = [f"Sources: {len(urls)} cited; {', '.join(counts)}."]
    for kind in ("broken", "not checked"):
        lines += [f"  {kind}: {url[:SHOWN]} ({ends[url][1][:SHOWN]})" for url in urls if ends[url][0] == kind]
    known = {url.rstrip("/") for url in cited(findings)}
    lines += [f"  not in the findings: {url[:SHOWN]}" for url in urls if url.rstrip("/") not in known]
    return "\n".join(lines)


if __name__ == "__main__":
    state = graph_state()
    print(json.dumps({"source_check": summary(str(state.get("report") or ""), str(state.get("findings") or ""))}))
