"""Mistakes in edges, and in what they form."""

from __future__ import annotations

import pytest
from support.workflow_files import Mistake, check

MISTAKES = {
    # edges
    "edge to nobody": Mistake(
        "      to: critic", "      to: citric", "unknown_node", "to: citric", "did you mean 'critic'?"
    ),
    "source and target": Mistake(
        "    - from: brief", "    - source: brief", "missing_key", "source: brief", "write `from`"
    ),
    "trigger in words": Mistake(
        "carry_data: false", "carry_data: never", "wrong_type", "carry_data: never", "true or false"
    ),
    "trigger of YAML 1.1": Mistake(
        "carry_data: false", "carry_data: no", "loose_value", "carry_data: no", "write false", "warning"
    ),
    "a text in the place of a boolean": Mistake(
        "carry_data: false", "carry_data: 'no'", "wrong_type", "carry_data: 'no'", "true or false"
    ),
    "condition of YAML 1.1": Mistake(
        "condition: code_pass", "condition: yes", "loose_value", "condition: yes", "write true", "warning"
    ),
    "condition in quotes": Mistake(
        "condition: code_pass", 'condition: "yes"', "unknown_function", 'condition: "yes"', "write the function"
    ),
    "processor for process": Mistake(
        "      process:", "      processor:", "other_spelling", "processor:", "write `process`", "warning"
    ),
    "unknown condition": Mistake(
        "condition: code_pass", "condition: code_passed", "unknown_function", "code_passed", "did you mean 'code_pass'?"
    ),
    "capital truth": Mistake("condition: code_pass", 'condition: "True"', "unknown_function", '"True"', "write `true`"),
    "condition of no type": Mistake(
        "        type: keyword\n        config:\n          any: [REVISE]",
        "        type: keywords\n        config:\n          any: [REVISE]",
        "unknown_type",
        "keywords",
        "did you mean 'keyword'?",
    ),
    "condition without words": Mistake(
        "          any: [REVISE]\n          none: [ACCEPT]",
        "          case_sensitive: true",
        "missing_key",
        "case_sensitive: true",
        "any: [DONE]",
    ),
    "words beside config": Mistake(
        "        config:\n          any: [REVISE]\n          none: [ACCEPT]",
        "        any: [REVISE]\n        none: [ACCEPT]",
        "missing_key",
        "type: keyword",
        "indent",
        also=("unknown_key",) * 2,
    ),
    "empty word": Mistake("any: [REVISE]", 'any: [REVISE, ""]', "empty_keyword", "any:", "remove it", "warning"),
    "default of words": Mistake(
        "any: [REVISE]", "any: [REVISE]\n          default: true", "unused_key", "default: true", "opposite", "warning"
    ),
    "bad pattern": Mistake("regex: ['ACCEPT\\b']", "regex: ['ACCEPT(']", "bad_pattern", "ACCEPT(", "backslash"),
    "escaped twice": Mistake(
        "regex: ['ACCEPT\\b']", "regex: ['ACCEPT\\\\b']", "escaped_twice", "ACCEPT", "write `\\b`", "warning"
    ),
    "group of nothing": Mistake(
        "          group: 1\n", "          group: 2\n", "unknown_group", "group: 2", "brackets", "warning"
    ),
    "default of no match": Mistake(
        "          on_no_match: default\n", "", "unused_key", "default_value", "on_no_match: default", "warning"
    ),
    "map of no kind": Mistake(
        "        type: tree", "        type: reduce", "unknown_type", "type: reduce", "did you mean 'tree'?"
    ),
    "group of one": Mistake("group_size: 2", "group_size: 1", "out_of_range", "group_size: 1", "at least 2"),
    "nothing at once": Mistake("max_parallel: 4", "max_parallel: 0", "out_of_range", "max_parallel: 0", "at least 1"),
    "path of JSONPath": Mistake(
        "json_path: articles", "json_path: $.articles", "not_jsonpath", "$.articles", "data.items", "warning"
    ),
    "pattern under split": Mistake(
        "          type: json_path\n          config:\n            json_path: articles",
        "          type: regex\n          pattern: x",
        "missing_key",
        "type: regex",
        "indent",
        also=("unknown_key",),
    ),
    "split_type without a pattern": Mistake(
        "        split:\n          type: json_path\n          config:\n            json_path: articles\n"
        "        config:\n",
        "        config:\n          split_type: regex\n",
        "missing_key",
        "split_type: regex",
        "pattern:",
    ),
    "half a clear": Mistake(
        "      clear_context: true\n", "", "half_clear", "clear_kept_context", "clear_context: true", "warning"
    ),
    "carried nowhere": Mistake(
        "      clear_context: true",
        "      clear_context: true\n      carry_data: false",
        "unused_key",
        "dynamic:",
        "carry_data",
        "warning",
    ),
    "edge for nothing": Mistake(
        "      condition: code_pass",
        "      trigger: false\n      carry_data: false",
        "idle_edge",
        "- from: count",
        "remove it",
        "warning",
    ),
    # loops
    "report ends the loop": Mistake(
        "    - from: writer\n      to: critic",
        "    - from: writer\n      to: critic\n    - from: writer\n      to: archive",
        "exit_at_once",
        "- from: writer",
        "trigger: false",
        "warning",
    ),
    "counter that never speaks": Mistake(
        "  ROUNDS: 3", "  ROUNDS: 300", "counter_above_cap", "max_iterations: ${ROUNDS}", "at most 100", "warning"
    ),
    "two ways in": Mistake(
        "    - from: writer\n      to: critic",
        "    - from: writer\n      to: critic\n    - from: brief\n      to: critic",
        "two_entries",
        "- from: brief",
        "trigger: false",
        "warning",
    ),
    "gate that can't go back": Mistake(
        "    - from: gate\n      to: writer\n      condition: always_false\n",
        "",
        "gate_outside_cycle",
        "- id: gate",
        "back into the cycle",
        "warning",
        also=("exit_at_once",),
    ),
    "gate on the only way back": Mistake(
        "    - from: critic\n      to: writer\n      condition:\n        type: keyword\n        config:\n"
        "          any: [REVISE]\n          none: [ACCEPT]\n",
        "",
        "gate_on_only_way",
        "- id: gate",
        "past the gate",
        "warning",
    ),
    "two starts on a cycle": Mistake(
        "start: [brief]", "start: [brief, writer, critic]", "two_starts", "start: [brief, writer", "remove `critic`"
    ),
    "nobody leads there": Mistake(
        "    - from: brief\n      to: writer\n      keep_message: true\n",
        "",
        "never_runs",
        "- id: writer",
        "start: [brief, writer]",
        "warning",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_on_its_line_with_the_way_to_mend_it(mistake: Mistake) -> None:
    check(mistake)
