"""Run-time differences between DevAll's guide and its program: one flag for each, and two sets of values.

`standard` follows the guide, and the program where the guide is silent, and fixes defects of the program; `devall`
reproduces the program of May 2026 exactly. Code tests single flags and never the name of a mode. Differences in
reading a file are in `protocol.workflow.dialect`.
"""

from __future__ import annotations

import msgspec

from ....protocol.workflow.dialect import Mode


class WorkflowRules(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a run where guide and program differ. The defaults are the values of `standard`.

    Attributes:
        cap_is_an_error: a cycle that reaches `max_iterations` and is triggered again fails the run. Otherwise it ends
            there with a warning.
        lone_units_run: a tree of one unit runs the target once. Otherwise the unit itself is the target's output.
        timers_start_anew: a loop_timer with `reset_on_emit` restarts after each message. Otherwise only after the
            first; after the second period it outputs its message at every visit.
        kept_needs_clear: `clear_kept_context` does nothing without `clear_context`. Otherwise it drops kept messages
            alone.
        self_loops_go_round: a node with an edge to itself inside a larger cycle repeats until that edge does not
            trigger. Otherwise it waits for itself, and neither it nor its dependents ever run.
        python_env: the `env` of a python node is set for its process. Otherwise it is ignored.
        unknown_functions_pass: an unknown condition counts as met, an unknown processor changes nothing; both warn.
            Otherwise the run fails.
        early_memories_count: memories of `pre_gen_thinking` are used when the agent thinks, or when it answers if it
            does not think. Memories of `finished` are passed to the functions of its edges. Otherwise both are unused.
        bare_stores_work: a simple or file store without `embedding` uses the user's default model. Otherwise it stays
            empty.
        words_stand_in: a simple or file store without available embeddings is searched by words. Otherwise that is an
            error, see `memories_must_answer`.
        stores_persist: a simple store without a path persists for the next run. Otherwise it ends with the run.
        memories_are_whole: a simple store stores the whole output. Otherwise the first three sentences, or 500
            characters.
        zero_finds_all: a `similarity_threshold` of 0 finds every text, as in the guide. Otherwise texts with a negative
            similarity are excluded.
        memories_must_answer: a store that cannot be read fails the node. Otherwise it counts as empty, with a warning.
    """

    cap_is_an_error: bool = True
    lone_units_run: bool = True
    timers_start_anew: bool = True
    kept_needs_clear: bool = True
    self_loops_go_round: bool = True
    python_env: bool = True
    unknown_functions_pass: bool = False
    early_memories_count: bool = True
    bare_stores_work: bool = True
    words_stand_in: bool = True
    stores_persist: bool = True
    memories_are_whole: bool = True
    zero_finds_all: bool = True
    memories_must_answer: bool = True


STANDARD = WorkflowRules()
DEVALL = WorkflowRules(**{row: not does for row, does in msgspec.structs.asdict(STANDARD).items()})

RULES: dict[Mode, WorkflowRules] = {"standard": STANDARD, "devall": DEVALL}
"""Values of `compat:`."""
