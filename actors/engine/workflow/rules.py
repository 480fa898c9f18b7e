"""Where the guide of DevAll and its program disagree about a run: one flag per row, two settings of all of them.

`standard` follows the guide where it speaks and the program elsewhere, with the program's traps mended; `devall` is
the program of May 2026 to the letter. Code asks for a flag by name and never for the name of a mode. What they disagree
about in reading a file is in `protocol.workflow.dialect`.
"""

from __future__ import annotations

import msgspec

from ....protocol.workflow.dialect import Mode


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does where the two disagree. The defaults are those of `standard`.

    Attributes:
        cap_is_an_error: a cycle that has gone round `max_iterations` times and would go on fails the run. Else: it
            ends there with a warning.
        lone_units_run: a tree of one unit runs the target once. Else: the unit itself is the target's output.
        timers_start_anew: a loop_timer with `reset_on_emit` starts again whenever it has spoken. Else: only the first
            time, and after that second period it speaks at every visit.
        kept_needs_clear: `clear_kept_context` does nothing without `clear_context`. Else: it drops kept messages alone.
        self_loops_go_round: a node that leads to itself inside of a larger cycle goes round until it no longer does.
            Else: it waits for itself, and neither it nor what depends on it ever runs.
        python_env: the `env` of a python node is for its process. Else: it is passed over.
        unknown_functions_pass: a condition by an unknown name is met, an unknown processor changes nothing; both warn.
            Else: the run fails.
        early_memories_count: what is read at `pre_gen_thinking` is there when the agent thinks; if it doesn't, when it
            answers. What is read at `finished` goes to the functions of its edges. Else: both are unused.
        bare_stores_work: a simple or file store without `embedding` has the user's own model. Else: it stays empty.
        words_stand_in: a simple or file store that can get no vectors is searched by its words. Else: that
            is an error, see `memories_must_answer`.
        stores_persist: a simple store without a path is there again in the next run. Else: it ends with this one.
        memories_are_whole: a simple store keeps what was said. Else: the first three sentences, or 500 characters.
        zero_finds_all: a `similarity_threshold` of 0 lets everything be found, as the guide has it. Else: what is less
            like the question than nothing at all stays out.
        memories_must_answer: a store that can't be read fails the node. Else: it counts as empty, with a warning.
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


STANDARD = Rules()
DEVALL = Rules(**{row: not does for row, does in msgspec.structs.asdict(STANDARD).items()})

RULES: dict[Mode, Rules] = {"standard": STANDARD, "devall": DEVALL}
"""Every value of `compat:`."""
