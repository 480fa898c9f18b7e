"""A network of its own for a process: a namespace, and a link from it to this one that goes down, or loses what goes
one way. Linux, root and iproute2.

What goes one way is lost by a wrong hardware address: whoever has it sends, and nobody takes what is sent. That needs
nothing of the kernel that might not be there, as netem and filters do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Literal

import pytest

Ways = Literal["both", "up", "down"]

NOBODY = "02:00:00:00:00:99"

_NUMBERS = count()


class Network:
    """See the module.

    Attributes:
        here: the address of this side; there: that of the other.
        enter: the beginning of a command that is to run in it.
    """

    def __init__(self) -> None:
        mark = os.getpid() * 64 + next(_NUMBERS) % 64
        parts = mark >> 14 & 127, mark >> 6 & 255, mark % 64 * 4
        self.here, self.there = (f"10.{128 + parts[0]}.{parts[1]}.{parts[2] + each}" for each in (1, 2))
        self._name = f"callboard{os.getpid()}-{mark % 64}"
        self._near, self._far = f"cb{mark % 0xFFFFFFFF:x}a", f"cb{mark % 0xFFFFFFFF:x}b"
        self.enter = ["ip", "netns", "exec", self._name]

    def make(self) -> None:
        near, far, inside = self._near, self._far, ["-n", self._name]
        _ip("netns", "add", self._name)
        _ip("link", "add", near, "type", "veth", "peer", "name", far, "netns", self._name)
        _ip("addr", "add", f"{self.here}/30", "dev", near)
        _ip(*inside, "addr", "add", f"{self.there}/30", "dev", far)
        _ip(*inside, "link", "set", "lo", "up")
        _ip(*inside, "link", "set", far, "up")
        _ip("link", "set", near, "up")

    def remove(self) -> None:
        """With it goes the link, since one of its ends is there; processes must not be in it any more."""
        _ip("netns", "del", self._name)

    def cut(self, ways: Ways) -> None:
        """Lose what goes out of the namespace (up), into it (down), or both."""
        if ways == "both":
            _ip("link", "set", self._near, "down")
        elif ways == "up":
            _ip("-n", self._name, "neigh", "replace", self.here, "lladdr", NOBODY, "nud", "permanent", "dev", self._far)
        else:
            _ip("neigh", "replace", self.there, "lladdr", NOBODY, "nud", "permanent", "dev", self._near)

    def heal(self) -> None:
        """All passes again."""
        _ip("link", "set", self._near, "up")
        _ip("neigh", "flush", "dev", self._near, "nud", "permanent")
        _ip("-n", self._name, "neigh", "flush", "dev", self._far, "nud", "permanent")


@contextmanager
def network() -> Iterator[Network]:
    """One; the test is skipped where there can be none."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("a network namespace can't be made here: that takes root, and ip of iproute2")
    made = Network()
    try:
        made.make()
    except subprocess.CalledProcessError as error:
        subprocess.run(["ip", "netns", "del", made.enter[-1]], capture_output=True, check=False)
        pytest.skip(f"a network namespace can't be made here: {error.stderr.strip()}")
    try:
        yield made
    finally:
        made.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
