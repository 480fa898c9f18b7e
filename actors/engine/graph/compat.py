"""Compatibility flags: one flag for each difference between Loki's documents and Loki's program, and two sets of
values.

`standard` follows the documents (the wiki page and the reference example) and fixes defects of the program; `loki`
reproduces version 0.4.0 exactly. docs/compatibility.md lists the flags with their reasons. Code tests single flags
and never the name of a mode.
"""

from __future__ import annotations

import msgspec


class Compat(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour of a run where Loki's documents and Loki's program differ. The defaults are the values of `standard`.

    Attributes:
        failure_goes_to_next: an llm or script node that fails without a `fallback` continues at its `next`, with
            the error text as `{{output}}` and a warning event (without a `next` the run fails there). Otherwise the
            run fails there. Both settings report the run as failed: see `node_exit`.
        missing_end_keys_are_empty: a key in `end.output` that is not in the state renders as "". True in both:
            the wiki requires an error, the example file and the program do not.
        default_is_validated: an input node's `default` must satisfy its `validation`. Otherwise it is used as it is.
        input_asks_once: an answer that violates an input's `validation` fails the node, whatever its source.
            Otherwise a user is asked again and sees the reason.
        options_are_exact: an answer selects an approval's option only if it is identical. Otherwise case is ignored.
        lengths_in_bytes: `len(input)` counts UTF-8 bytes. Otherwise characters.
        values_expand_again: a value that holds `{{x}}` is expanded if the same template names `x` later. Otherwise
            values are never expanded, so that external text cannot read the state.
        scoped_names_stay_null: `output`, `choice` and `input` remain in the state as null after the node whose
            `state_updates` used them, or get their former value back, even if an update set them. Otherwise they are
            removed, two parallel llm nodes do not collide on them, and an update of that name is stored.
        map_needs_output_key: a map branch that did not write `output_key` fails the map, whatever its type.
            Otherwise the result of an llm, agent or rag branch is collected.
        end_drops_lanes: an end node drops the other lanes silently. Otherwise a warning event names them.
        map_branch_is_one_node: a map's branch is a single node: `next` is an error, `_next` and `fallback`
            are ignored, a failed llm's error text is collected. Otherwise a branch can be a chain of nodes.
        failed_maps_leave_nothing: a map that fails writes nothing. Otherwise it writes the results of its other items.
        schema_is_a_hint: any JSON is accepted as the answer for an `output_schema`. Otherwise the answer must fit the
            schema, and the repair call receives the validation errors.
        zero_visits_is_a_cap: `max_loop_iterations: 0` fails the run at its first node. Otherwise 0 means no limit.
        updates_see_each_other: a template in `state_updates` sees the results of the updates above it. Otherwise
            all templates are rendered from the same state and stored together.
        missing_servers_are_silent: a name in `mcp_servers` that no `mcp.json` defines is skipped silently. Otherwise
            with a warning. Its tools are absent in both.
        extra_checks_only_warn: mistakes that Loki's validator does not report are warnings. Otherwise they are errors
            if the run is certain to fail.
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
"""Values of `settings.compat` and `--compat` for graph agents."""
