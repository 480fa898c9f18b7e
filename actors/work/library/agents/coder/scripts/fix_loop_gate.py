"""Another try with the log of what failed, as long as there are tries left."""

from graph_state import go, graph_state

state = graph_state()
done, limit = int(state.get("fix_attempts") or 0), int(state.get("max_fix_attempts", 3))
if done >= limit:
    go("end_failure")
else:
    if state.get("build_ok") is False:
        what, log = "The build", state.get("build_output")
    elif state.get("tests_ok") is False:
        what, log = "The test run", state.get("tests_output")
    else:
        what, log = "A check", "It left no log."
    told = f"{what} failed (try {done + 1} of {limit}). Mend only this:\n\n{log}"
    go("implement", fix_attempts=done + 1, fix_instructions=told)
