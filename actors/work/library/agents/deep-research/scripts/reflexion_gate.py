"""Another pass with what the reviewer found missing, as long as there are passes left; else the writer is told."""

from graph_state import go, graph_state

state = graph_state()
feedback = str(state.get("feedback") or "").strip()
done, limit = int(state.get("research_attempts") or 0), int(state.get("max_revisions", 2))
if state.get("verdict") != "revise":
    go("synthesize", open_points="")
elif done >= limit:
    go("synthesize", open_points=f"A reviewer still misses this, which belongs to the open questions:\n\n{feedback}")
else:
    known = state.get("findings") or ""
    go(
        "research_each_question",
        questions=state.get("next_questions") or state.get("questions") or [],
        research_attempts=done + 1,
        research_feedback=(
            f"A reviewer found this wanting (pass {done + 1} of {limit}); mend what concerns your question:\n\n"
            f"{feedback}\n\nWhat is known by now, to build on and to correct:\n\n{known}"
        ),
    )
