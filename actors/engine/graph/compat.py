"""Where Loki's documents and the program disagree: one flag per row, two settings of all of them.

`standard` follows the documents (the wiki page and the reference example) with the program's defects mended;
`loki` is version 0.4.0 to the letter. The rows with their reasons are in docs/compatibility.md. Code asks for
a flag by name and never for the name of a mode.
"""

from __future__ import annotations

import msgspec


class Compat(msgspec.Struct, frozen=True, kw_only=True):
    """What a run does where the two disagree. The defaults are those of `standard`.

    Attributes:
        failure_goes_to_next: an llm or script node that fails without a `fallback` goes to its `next`, with
            the error text as `{{output}}` and a warning event (without a `next` the run fails there). Else: the run
            fails there. It has failed in both: see `execute`.
        missing_end_keys_are_empty: a key that `end.output` names and the state lacks renders as "". True in both:
            the wiki wants an error, the example file and the program do not.
        default_is_validated: an input node's `default` has to satisfy its `validation`.
        input_asks_once: an answer that breaks an input's `validation` fails the node, whoever gave it. Else: a person
            is asked again and told why.
        options_are_exact: an answer means an approval's option by its very letters. Else: in any case of letters.
        lengths_in_bytes: `len(input)` counts UTF-8 bytes. Else: characters.
        values_expand_again: a value that holds `{{x}}` is expanded when the same template names `x` later. Else:
            what a value holds is never looked at, so that text from outside can't read the state.
        scoped_names_stay_null: `output`, `choice` and `input` are left in the state as null after the node
            whose `state_updates` used them, or put back to what they were, also if an update set them. Else: they are
            gone, two parallel llm nodes don't collide on them, and an update of that name is kept.
        map_needs_output_key: a map branch that did not write `output_key` fails the map, whatever its type. Else:
            the result of an llm, agent or rag branch is collected.
        end_drops_lanes: when an end node is reached, the other lanes are dropped without a word. Else: a warning
            event names them.
        map_branch_is_one_node: a map's branch is its one node: `next` is an error, `_next` and `fallback`
            are ignored, a failed llm's error text is collected. Else: a branch may be a chain that stays inside.
        failed_maps_leave_nothing: of a map that fails, nothing is in the state. Else: what its other items came to.
        schema_is_a_hint: what a model answers to an `output_schema` only has to be JSON. Else: it is validated,
            and the repair call is told what is wrong.
        zero_visits_is_a_cap: `max_loop_iterations: 0` stops at the first node. Else: 0 means no cap.
        updates_see_each_other: a template in `state_updates` sees the keys that stand above it already changed. Else:
            all are rendered from the same state and stored together.
        missing_servers_are_silent: a name in `mcp_servers` that no `mcp.json` has is passed over without a word. Else:
            with a warning. Its tools are absent in both.
        extra_checks_only_warn: mistakes that Loki's validator does not look for are warnings. Else: errors,
            where the run is certain to fail.
    """

    failure_goes_to_next: bool = True
    missing_end_keys_are_empty: bool = True
    default_is_validated: bool = False
    input_asks_once: bool = False
    options_are_exact: bool = False
    lengths_in_bytes: bool = False
    values_expand_again: bool = False
    scoped_names_stay_null: bool = False
    map_needs_output_key: bool = False
    end_drops_lanes: bool = False
    map_branch_is_one_node: bool = False
    failed_maps_leave_nothing: bool = False
    schema_is_a_hint: bool = False
    zero_visits_is_a_cap: bool = False
    updates_see_each_other: bool = False
    missing_servers_are_silent: bool = False
    extra_checks_only_warn: bool = False


STANDARD = Compat()

_SAME = ("missing_end_keys_are_empty",)
LOKI = Compat(**{row: not does for row, does in msgspec.structs.asdict(STANDARD).items() if row not in _SAME})

MODES: dict[str, Compat] = {"standard": STANDARD, "loki": LOKI}
"""The values of `settings.compat` and `--compat` that concern graph agents."""
