"""One reader of the story: `RunView` reduces a run's events to the state of the run, and front ends map that state.

The room knows `protocol` only. It does no I/O, never waits and never raises, whatever events come and in which order.
Start with `run_view`; `activity` is what it keeps of one thing under way.

Who reads a `RunView`, and what each takes from it:

    cli/render/tree             the activities under way as a tree: titles, times, what each is at; open questions
    cli/render/narration        types of nodes, nesting, usage, questions that are open
    cli/render/troupe           calls under way with their arguments, child agents under way
    cli/../attaching            questions that are open
    front/control/tree          actors: kind, since when, what each does, turns, tokens, cost, restarts, last event
    front/control/runs/summary  prompt, target, model, status, usage, open questions, outcome
    front/telemetry             activities that begin and end, as spans; what encloses them; tokens; pieces of text
    front/metrics               runs under way, requests that are out, pieces of answers, waits of questions
    front/http/shapes           who speaks for the run and whose calls are its own, nodes and calls under way, usage
    front/acp/updates           requests of the run's own agent, calls under way with their arguments, cost

Others tell single events and have no books: the MCP server's progress, the audit log, `-o stream-json`. The page has
the same model in JavaScript (`front/page/model`); a test holds both against each other on recorded runs.
"""
