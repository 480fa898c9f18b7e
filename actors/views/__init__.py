"""Run view: `RunView` reduces a run's events to the state of the run. Front ends map that state to their formats.

This package imports `protocol` only. It does no I/O, never waits, and never raises, whatever events arrive in whatever
order. Start with `run_view`, which also has the records of one activity, actor or node. `call_text` and `money` are for
display: a request to a model and its reply as text, and amounts of money.

Each of these reads a view: the command line (`cli/render`, `cli/control`), `front/control` (actors, summaries),
`front/telemetry`, `front/metrics`, `front/http/shapes` and `front/acp/updates`. Code that reports single events needs
no view: the MCP server's progress, the audit log, `-o stream-json`. The web page has the same model in JavaScript
(`front/page/model`); a test compares both on recorded runs.
"""
