"""A stage with a server in front of it: what a browser is sent to."""

from __future__ import annotations

from stage import Stage


class House(Stage):
    """`page`: the address that `callboard serve` prints."""

    page: str
