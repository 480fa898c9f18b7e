"""Mistakes in the file, its graph and its nodes."""

from __future__ import annotations

import pytest
from support.workflow_files import Mistake, check

MISTAKES = {
    # the file and its variables
    "graph misspelt": Mistake(
        "\ngraph:\n", "\ngrpah:\n", "missing_key", "version:", "write `graph:`", also=("unknown_key",)
    ),
    "vars in the graph": Mistake(
        "  id: newsroom", "  id: newsroom\n  vars: {A: 1}", "misplaced_key", "vars: {A: 1}", "beside `graph:`"
    ),
    "unset variable": Mistake("ROUNDS: 3", "ROUND: 3", "unknown_variable", "${ROUNDS}", "did you mean 'ROUND'?"),
    "number for a model, by way of another variable": Mistake(
        "MODEL: small",
        "MODEL: ${ROUNDS}\n  X: ${MODEL}",
        "wrong_type",
        "name: ${MODEL}",
        "put quotes",
        also=("wrong_type",),
    ),
    "cycle of variables": Mistake(
        "MODEL: small",
        "MODEL: ${OTHER}\n  OTHER: ${MODEL}",
        "variable_cycle",
        "OTHER: ${MODEL}",
        "give one of them a value",
    ),
    "a number for a model": Mistake(
        "    - id: critic\n      type: agent\n      config:\n        provider: gemini\n        name: ${MODEL}",
        "    - id: critic\n      type: agent\n      config:\n        provider: gemini\n        name: ${ROUNDS}",
        "wrong_type",
        "name: ${ROUNDS}",
        "put quotes around it",
    ),
    "unknown dialect": Mistake('version: "1.0"', "compat: chatdev", "unknown_value", "compat: chatdev", "standard"),
    "version as a number": Mistake(
        'version: "1.0"', "version: 1.0", "wrong_type", "version: 1.0", 'put quotes around it: "1.0"'
    ),
    # the graph
    "level of the log": Mistake(
        "log_level: INFO", "log_level: INFOS", "unknown_value", "log_level: INFOS", "did you mean 'INFO'?"
    ),
    "start names nobody": Mistake(
        "start: [brief]", "start: [breif]", "unknown_node", "start: [breif]", "did you mean 'brief'?"
    ),
    "end names nobody": Mistake(
        "    - archive\n  memory", "    - archives\n  memory", "unknown_node", "- archives", "did you mean 'archive'?"
    ),
    "graph key misspelt": Mistake(
        "  description: Writes an article",
        "  desciption: Writes an article",
        "unknown_key",
        "desciption:",
        "did you mean 'description'?",
        "warning",
    ),
    "no cap at all": Mistake(
        "  id: newsroom", "  id: newsroom\n  max_iterations: 0", "out_of_range", "max_iterations: 0", "at least 1"
    ),
    "voting beside edges": Mistake(
        "  id: newsroom",
        "  id: newsroom\n  is_majority_voting: true",
        "unused_key",
        "edges:",
        "remove them",
        "warning",
    ),
    # nodes
    "two of one name": Mistake(
        "id: gate\n", "id: critic\n", "duplicate_id", "id: critic", "rename one", also=("unknown_node",) * 3
    ),
    "unknown type": Mistake(
        "type: loop_counter", "type: loop_conter", "unknown_type", "loop_conter", "did you mean 'loop_counter'?"
    ),
    "no type": Mistake("      type: loop_counter\n", "", "missing_key", "- id: gate", "agent, human"),
    "no config": Mistake(
        "      type: passthrough\n      config: {}",
        "      type: passthrough",
        "missing_key",
        "- id: archive",
        "config: {}",
    ),
    "config beside itself": Mistake(
        "        max_iterations: ${ROUNDS}\n        message: Enough.",
        "      max_iterations: 3",
        "missing_key",
        "config:",
        "indent its keys under it",
        also=("unknown_key",),
    ),
    "node key misspelt": Mistake(
        "context_window: 5",
        "contextwindow: 5",
        "unknown_key",
        "contextwindow",
        "did you mean 'context_window'?",
        "warning",
    ),
    "window in words": Mistake(
        "context_window: 5", "context_window: five", "wrong_type", "context_window: five", "a whole number"
    ),
    "window in quotes": Mistake(
        "context_window: 5", 'context_window: "5"', "loose_value", "context_window", "write 5.", "warning"
    ),
    "window below all": Mistake(
        "context_window: 5", "context_window: -7", "loose_value", "context_window: -7", "write -1", "warning"
    ),
    "role beside config": Mistake(
        "      context_window: 5", "      role: You write.", "unknown_key", "role: You write.", "`config`", "warning"
    ),
    "role beside no config": Mistake(
        "      type: passthrough\n      config: {}",
        "      type: agent\n      role: You write.",
        "missing_key",
        "- id: archive",
        "config: {}",
        also=("unknown_key",),
    ),
    "old map on a node": Mistake(
        "      context_window: 5",
        "      dynamic: {type: map}",
        "unknown_key",
        "dynamic:",
        "edges that lead into",
        "warning",
    ),
    "seed without a role": Mistake(
        "      context_window: 5",
        "      input: [{role: boss, content: x}]",
        "unknown_value",
        "role: boss",
        "role: user",
    ),
    "what errors mean": Mistake(
        "      context_window: 5", "      on_error: ignore", "unknown_value", "on_error: ignore", "continue, fail"
    ),
    "counter of none": Mistake(
        "max_iterations: ${ROUNDS}", "max_iterations: 0", "out_of_range", "max_iterations: 0", "at least 1"
    ),
    "literal of nothing": Mistake("content: Write plainly.", 'content: ""', "out_of_range", 'content: ""', "not empty"),
    "role of a literal": Mistake("        role: user", "        role: bot", "unknown_value", "role: bot", "user"),
    "time of Python": Mistake(
        "timeout_seconds: 20", "timeout_seconds: 2.5", "wrong_type", "timeout_seconds: 2.5", "a whole number"
    ),
    "name of the time of Python": Mistake(
        "timeout_seconds: 20", "timeout: 20", "unknown_key", "timeout: 20", "timeout_seconds", "warning"
    ),
    "script of Python": Mistake(
        "timeout_seconds: 20", "entry_script: run.py", "unknown_key", "entry_script", "under `code:`", "warning"
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_on_its_line_with_the_way_to_mend_it(mistake: Mistake) -> None:
    check(mistake)
