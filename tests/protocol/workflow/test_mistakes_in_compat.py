"""What DevAll's own engine ignores or trips over, said with `compat: devall`."""

from __future__ import annotations

import pytest
from support.workflow_files import Mistake, check

MISTAKES = {
    # only with the engine's own habits
    "processor, in compat": Mistake(
        "      process:", "      processor:", "ignored_key", "processor:", "write `process`", "warning", "devall"
    ),
    "all, in compat": Mistake(
        "any: [REVISE]",
        "any: [REVISE]\n          all: [NOW]",
        "ignored_key",
        "all: [NOW]",
        "regex",
        "warning",
        "devall",
    ),
    "memories of people, in compat": Mistake(
        "        description: Accept",
        "        memories: [{name: remarks}]\n        description: Accept",
        "ignored_key",
        "memories:",
        "agent",
        "warning",
        "devall",
    ),
    "split_type, in compat": Mistake(
        "max_parallel: 4",
        "max_parallel: 4\n          split_type: lines",
        "ignored_key",
        "split_type",
        "split:",
        "warning",
        "devall",
    ),
    "item_name, in compat": Mistake(
        "max_parallel: 4",
        "max_parallel: 4\n          item_name: article",
        "ignored_key",
        "item_name",
        "remove",
        "warning",
        "devall",
    ),
    "code of Python, in compat": Mistake(
        "timeout_seconds: 20",
        "timeout_seconds: 20\n        code: print(1)",
        "ignored_key",
        "code:",
        "literal",
        "warning",
        "devall",
    ),
    "env of Python, in compat": Mistake(
        "timeout_seconds: 20",
        "timeout_seconds: 20\n        env: {A: b}",
        "unused_key",
        "env:",
        "os.environ",
        "warning",
        "devall",
    ),
    "text false, in compat": Mistake(
        "condition: code_pass",
        'condition: "false"',
        "unknown_function",
        '"false"',
        "condition: false",
        "warning",
        "devall",
    ),
    "unknown condition, in compat": Mistake(
        "condition: code_pass",
        "condition: code_passed",
        "unknown_function",
        "code_passed",
        "code_pass",
        "warning",
        "devall",
    ),
    "second edge, in compat": Mistake(
        "    - from: writer\n      to: critic",
        "    - from: writer\n      to: critic\n    - from: writer\n      to: critic\n      keep_message: true",
        "merged_edges",
        "- from: writer",
        "into one",
        "warning",
        "devall",
    ),
    "name that breaks loops, in compat": Mistake(
        "    - id: brief",
        "    - id: node_1\n      type: passthrough\n      config: {}\n    - id: brief",
        "bad_id",
        "id: node_1",
        "rename",
        compat="devall",
        also=("never_runs",),
    ),
    "no start, in compat": Mistake(
        "  start: [brief]\n", "", "no_start", "id: newsroom", "start: [brief]", compat="devall"
    ),
    "store without config, in compat": Mistake(
        "      type: blackboard\n      config:\n        max_items: 50",
        "      type: blackboard",
        "missing_key",
        "- name: remarks",
        "config: {}",
        compat="devall",
    ),
    "store without vectors, in compat": Mistake(
        "        embedding: {provider: openai, model: embed}\n",
        "",
        "no_embedding",
        "- name: style_guide",
        "embedding",
        "warning",
        "devall",
    ),
    "bare path, in compat": Mistake(
        "max_items: 50", "memory_path: auto", "bare_path", "memory_path: auto", "directory", "warning", "devall"
    ),
    "startup_timeout, in compat": Mistake(
        "args: [mcp-server-time]",
        "args: [mcp-server-time]\n              startup_timeout: 60",
        "unused_key",
        "startup_timeout: 60",
        "remove it",
        "warning",
        "devall",
    ),
    "timeout of functions, in compat": Mistake(
        "              tools:\n                - name: get_weather",
        "              timeout: 5\n              tools:\n                - name: get_weather",
        "unused_key",
        "timeout: 5",
        "remove it",
        "warning",
        "devall",
    ),
    "memory before second thoughts, in compat": Mistake(
        "retrieve_stage: [gen]",
        "retrieve_stage: [pre_gen_thinking]",
        "unused_key",
        "retrieve_stage",
        "[gen]",
        "warning",
        "devall",
    ),
    "protocol, in compat": Mistake(
        "temperature: 0.3", "protocol: chat", "breaking_param", "protocol: chat", "remove it", "warning", "devall"
    ),
    "bound of calls, in compat": Mistake(
        "temperature: 0.3", "tool_loop_limit: 5", "breaking_param", "tool_loop_limit", "remove it", "warning", "devall"
    ),
    "wait_for_log": Mistake(
        "args: [mcp-server-time]",
        "args: [mcp-server-time]\n              wait_for_log: ready",
        "unused_key",
        "wait_for_log",
        "remove",
        "warning",
        "devall",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_on_its_line_with_the_way_to_mend_it(mistake: Mistake) -> None:
    check(mistake)
