"""Limits of client input: the types of method parameters and of request bodies.

Every text, list and dictionary in them has one of these types or its own limit, and a test checks all of them. A
value of any shape (`Json`) is limited only by its frame or its body. The server therefore does not retain such a
value longer than the request.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

MOST = 10_000
"""Maximum of items in a list, and of keys in a dictionary."""

MOST_CUT = 1_000
"""Maximum of values in `_meta.cut`."""

LONGEST_NAME = 500
"""Maximum of characters in names, ids and titles, which lists show and the server retains."""

Name: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
Path: TypeAlias = Annotated[str, Meta(max_length=8_192)]
"""File path, URL, or pattern of either."""

Value: TypeAlias = Annotated[str, Meta(max_length=1_000_000)]
"""Value of a variable, an environment variable, or a header."""

Text: TypeAlias = Annotated[str, Meta(max_length=10_000_000)]
"""Text of users and models."""

BY_FRAME = {"bounded": "by its frame or body"}
Json: TypeAlias = Annotated[Any, Meta(extra=BY_FRAME)]

Names: TypeAlias = Annotated[list[Name], Meta(max_length=MOST)]
Paths: TypeAlias = Annotated[list[Path], Meta(max_length=MOST)]
Variables: TypeAlias = Annotated[dict[Name, Value], Meta(max_length=MOST)]
Object: TypeAlias = Annotated[dict[Name, Json], Meta(max_length=MOST)]
Objects: TypeAlias = Annotated[list[Object], Meta(max_length=MOST)]
Answer: TypeAlias = Annotated[str, Meta(max_length=1_000_000)] | Annotated[list[Value], Meta(max_length=MOST)]
"""Answer to a question."""
