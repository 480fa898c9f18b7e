"""Large plans go past a person first, unless CODER_AUTOAPPROVE=1."""

import os

from graph_state import go, graph_state

LARGE = 7

score = float(graph_state().get("complexity_score") or 0)
approved = os.environ.get("CODER_AUTOAPPROVE") == "1"
go("gate_approval" if score >= LARGE and not approved else "measure")
