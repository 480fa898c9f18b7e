"""How long what a client says may be: the types that the parameters of methods and the bodies of requests are made of.

Every text, list and dictionary of theirs is one of these or says its own bound, and a test walks them all. A value of
any shape (`Json`) is bounded by its frame or its body, and by nothing else; so the server keeps nothing of the kind
beyond what it was sent for.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

MOST = 10_000
"""Items of a list, keys of a dictionary."""

LONGEST_NAME = 500
"""Characters of what lists show and the server keeps: names, ids, titles."""

Name: TypeAlias = Annotated[str, Meta(max_length=LONGEST_NAME)]
Path: TypeAlias = Annotated[str, Meta(max_length=8_192)]
"""A file, an address, a pattern of either."""

Value: TypeAlias = Annotated[str, Meta(max_length=1_000_000)]
"""Of a variable, of an environment, of a header."""

Text: TypeAlias = Annotated[str, Meta(max_length=10_000_000)]
"""What people and models say to each other."""

BY_FRAME = {"bounded": "by its frame or body"}
Json: TypeAlias = Annotated[Any, Meta(extra=BY_FRAME)]

Names: TypeAlias = Annotated[list[Name], Meta(max_length=MOST)]
Paths: TypeAlias = Annotated[list[Path], Meta(max_length=MOST)]
Variables: TypeAlias = Annotated[dict[Name, Value], Meta(max_length=MOST)]
Object: TypeAlias = Annotated[dict[Name, Json], Meta(max_length=MOST)]
Objects: TypeAlias = Annotated[list[Object], Meta(max_length=MOST)]
Answer: TypeAlias = Annotated[str, Meta(max_length=1_000_000)] | Annotated[list[Value], Meta(max_length=MOST)]
"""To a question."""
