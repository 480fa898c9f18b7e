"""Errors on the wire: what a server has refused is the same error for its client."""

from __future__ import annotations

import pytest

from callboard.protocol.control.errors import error_data, error_of
from callboard.protocol.errors import CallboardError, Conflict, NotFound, UsageError
from callboard.protocol.jsonrpc import ErrorData


@pytest.mark.parametrize("kind", [NotFound, Conflict, UsageError])
def test_a_refusal_is_the_error_that_it_was_at_the_server(kind: type[CallboardError]) -> None:
    told = error_of(error_data(kind("no")))
    assert (str(told), told.code, told.exit_code) == ("no", kind.code, kind.exit_code)


@pytest.mark.parametrize("data", [None, "text", {}, {"code": "of a later version"}])
def test_a_refusal_without_a_known_code_is_an_error_all_the_same(data: object) -> None:
    told = error_of(ErrorData(-32000, "no", data))
    assert (str(told), told.exit_code) == ("no", 1)
