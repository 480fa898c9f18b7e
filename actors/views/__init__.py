"""One reader of the story: `RunView` reduces a run's events to the state of the run, and front ends map that state.

The room knows `protocol` only. It does no I/O, never waits and never raises, whatever events come and in which order.
Start with `run_view`; `activity` is what it keeps of one thing under way.

The command line (`cli/render`, `cli/control`), `front/control` (actors, summaries), `front/telemetry`, `front/metrics`,
`front/http/shapes` and `front/acp/updates` read a view each.
Others tell single events and have no books: the MCP server's progress, the audit log, `-o stream-json`. The page has
the same model in JavaScript (`front/page/model`); a test holds both against each other on recorded runs.
"""
