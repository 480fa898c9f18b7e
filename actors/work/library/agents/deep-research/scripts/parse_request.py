"""The prompt of the run is the topic; without one a person is asked."""

from graph_state import go, graph_state

topic = str(graph_state().get("initial_prompt") or "").strip()
if topic:
    go("bootstrap_research", topic=topic)
else:
    go("ask_topic")
