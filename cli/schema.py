"""`callboard schema`: JSON Schemas, for editors and for programs that read events."""

from __future__ import annotations

import json
import sys

import click

_ABOUT = {
    "graph": (".protocol.graph.schema", "graph_schema"),
    "agent": (".protocol.agent", "agent_schema"),
    "workflow": (".protocol.workflow.schema", "workflow_schema"),
    "settings": (".protocol.settings", "json_schema"),
    "mcp": (".protocol.mcp.schema", "mcp_schema"),
    "knowledge": (".protocol.knowledge_file", "knowledge_schema"),
    "events": (".protocol.event_schema", "json_schema"),
    "control": (".protocol.control.schema", "json_schema"),
}


@click.command("schema", short_help="Print the JSON Schema of a file or of events.")
@click.argument("about", type=click.Choice(list(_ABOUT)))
def command(about: str) -> int:
    """Prints the JSON Schema (2020-12) of graph.yaml, of an agent's config.yaml, of a DevAll workflow, of the
    settings, of mcp.json, of a knowledge base's file, of events, or of the control channel's frames.

    \b
    For completion and checks in an editor, save it and name it in the first line of the YAML file:
      # yaml-language-server: $schema=graph.schema.json
    """
    from importlib import import_module

    module, function = _ABOUT[about]
    schema = getattr(import_module(module, __package__.rpartition(".")[0]), function)()
    sys.stdout.write(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")
    return 0
