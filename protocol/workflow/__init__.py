"""DevAll (ChatDev 2.0) workflows: the language of files with `graph:` at the top level.

- `model` defines the structs, `dialect` the differences between DevAll's guide and its program.
- `read` fills the structs from a text and reports every problem; `variables` replaces references, `parts` reads nodes
  and edges, `reading` has the rules of both.
- `lint` warns about surprising graphs, `cycles` finds their cycles.
- `schema` makes a JSON Schema for editors.

The package does no I/O and does not know how a workflow runs. It imports other modules of `protocol/` and nothing above
it. Names to know: `Workflow`, `Graph`, `Dialect`, `read_workflow`. Start with `model`.
"""

from .dialect import DEVALL, STANDARD, Dialect, Known, Load, Mode
from .model import Graph, Node, Workflow
from .read import read_workflow

__all__ = ["DEVALL", "STANDARD", "Dialect", "Graph", "Known", "Load", "Mode", "Node", "Workflow", "read_workflow"]
