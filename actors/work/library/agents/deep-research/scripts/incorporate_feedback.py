"""What the reader of the report said goes back to the plan, and from there to everybody; the reviewer begins anew."""

from graph_state import go, graph_state

state = graph_state()
wish = str(state.get("decision") or "").strip()
earlier = str(state.get("wishes") or "").strip() or "What the reader of the report wants, before all else:"
go(
    "plan",
    wishes=f"{earlier}\n- {wish}",
    open_points="",
    research_attempts=0,
    research_feedback=(
        f"The reader of the report wants this, before all else:\n\n{wish}\n\n"
        f"What is known by now, to build on and to correct:\n\n{state.get('findings') or ''}"
    ),
)
