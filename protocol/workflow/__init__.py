"""The language of DevAll (ChatDev 2.0) workflows: the format of files with `graph:` at the top level.

- `model`, `edges` and `agents` define the structs.
- `read` fills them from a text and reports every problem; `variables`, `parts/`, `loops` and `lint` help it.
- `schema` makes a JSON Schema for editors.
- `dialect` lists the differences between DevAll's guide and its program.

The package is pure: it does no I/O, does not import trio, and does not know how a workflow runs.
"""

from .dialect import DEVALL, STANDARD, Dialect, Known, Load, Mode
from .model import Graph, Node, Workflow
from .read import read_workflow

__all__ = ["DEVALL", "STANDARD", "Dialect", "Graph", "Known", "Load", "Mode", "Node", "Workflow", "read_workflow"]
