"""Regular expressions of a workflow file, compiled with its author's flags."""

from __future__ import annotations

import re

from .....protocol.workflow.edges import ByMatch, RegexExtract
from .matching import Pattern


def pattern_in(block: RegexExtract | ByMatch) -> Pattern:
    """The compiled pattern of a block that says in words what its flags are.

    Raises:
        GraphMistake: it is none.
    """
    flags = re.NOFLAG
    if not block.case_sensitive:
        flags |= re.IGNORECASE
    if block.multiline:
        flags |= re.MULTILINE
    if block.dotall:
        flags |= re.DOTALL
    return Pattern(block.pattern, flags)
