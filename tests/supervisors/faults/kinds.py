"""The five kinds of child of the fault matrix, as shell scripts: fast to start, and what people really run.

Every process of a kind proves that it lives by holding a fifo open for writing (`$1` is the fifo's path), which the
kernel closes when it dies. A fifo is inherited, so whatever a child starts proves it as well; one that opened it says
so with a line that names its role. `cat` waits for the end of stdin, as a polite server does.
"""

from __future__ import annotations

_CHILD = 'exec 3>"$1"; '
_LEAVES = "exec >/dev/null 2>&1 </dev/null; "

SCRIPTS: dict[str, str] = {
    # Exits when its stdin ends, and leaves a helper in its group.
    "polite": _CHILD + "(exec >/dev/null 2>&1; echo helper >&3; exec sleep 300) & echo child >&3; cat >/dev/null",
    # Its grandchild holds all our pipes, so that none of them ends with the child.
    "inherit": _CHILD + "exec 4<&0; (echo helper >&3; exec sleep 300 <&4) & echo child >&3; cat >/dev/null",
    # Its grandchild is in a session of its own: no signal to the group reaches it.
    "setsid": _CHILD + "setsid sh -c '" + _LEAVES + "echo helper >&3; exec sleep 300' & echo child >&3; cat >/dev/null",
    # Ignores the end of stdin, and with its grandchild every polite signal.
    "stubborn": _CHILD
    + "trap '' INT TERM HUP; (echo helper >&3; exec sleep 300) & echo child >&3; while :; do sleep 300; done",
    # `sh -c` that is the first to die; the worker cleared its environment, ignores polite signals, and has left
    # the group (`set -m`), but not the session.
    "wrapper": _CHILD
    + "set -m; (trap '' INT TERM HUP; exec env -i sh -c 'echo helper >&3; while :; do sleep 300; done') &"
    + " echo child >&3; cat >/dev/null",
}

STUBBORN = frozenset({"stubborn", "wrapper"})
"""Those that only SIGKILL ends."""

ROLES = ("child", "helper")


def command(kind: str, fifo: str) -> list[str]:
    """The command line of one kind of child."""
    return ["sh", "-c", SCRIPTS[kind], kind, fifo]
