"""The language of DevAll (ChatDev 2.0) workflows: what a file with `graph:` at its top may say.

`model`, `edges` and `agents` hold the structs, `read` fills them from text and reports every problem (`variables`,
`parts/`, `loops`, `lint`), `schema` describes the files to editors. `dialect` says where DevAll's guide and its program
disagree. Pure: no I/O, no trio, no idea of how a workflow runs.
"""

from .dialect import DEVALL, STANDARD, Dialect, Known, Load, Mode
from .model import Graph, Node, Workflow
from .read import read_workflow

__all__ = ["DEVALL", "STANDARD", "Dialect", "Graph", "Known", "Load", "Mode", "Node", "Workflow", "read_workflow"]
