"""Another try with the log of what failed, as long as there are tries left."""

from graph_state import go, graph_state

state = graph_state()
done, limit = int(state.get("fix_attempts") or 0), int(state.get("max_fix_attempts", 3))
if done >= limit:
    go("end_failure")
else:
    failure, log = state.get("failure") or "a check failed", state.get("failure_log") or "It left no log."
    go(
        "implement",
        fix_attempts=done + 1,
        fix_instructions=f"Try {done + 1} of {limit}: {failure}. Mend only this:\n\n{log}",
        # What a check leaves here if it ends without a report.
        build_status="could not run: its script left no report",
        tests_status="could not run: their script left no report",
    )
