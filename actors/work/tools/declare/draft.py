"""A function of a Python or TypeScript file, while its declaration is put together."""

from __future__ import annotations

from typing import final

from .....protocol.problems import did_you_mean
from .declaration import Declaration, Language, Schema
from .docstrings import Docstring
from .schemas import parameters
from .script import Script, Unreadable


@final
class Draft:
    """Takes the parameters one after the other; what keeps the function from being a tool is noted at `script`.

    Args:
        name: what the model calls.
        function: its name in the file.
        line, offset: where it stands.
        doc: what its comment says.
        expected: the comment that it needs; "" if it may do without.
    """

    def __init__(
        self, script: Script, name: str, function: str, line: int, offset: int, doc: Docstring, expected: str, hint: str
    ) -> None:
        self._script = script
        self._name = name
        self._function = function
        self._line = line
        self._doc = doc
        self._properties: dict[str, Schema] = {}
        self._required: list[str] = []
        self._fine = name == "_instructions" or script.usable_name(name, line)
        if expected and not doc.description and name != "_instructions":
            message = f"Missing or empty description on function: {function}"
            self.refuse(Unreadable("no_description", message, line, offset, expected=expected, hint=hint))

    def refuse(self, wrong: Unreadable) -> None:
        """This keeps it from being a tool."""
        self._script.note(wrong)
        self._fine = False

    def add(self, name: str, schema: Schema, line: int, offset: int, *, needed: bool) -> None:
        """One more parameter."""
        self._script.doubt_name(name, line, offset)
        self._properties[name] = schema
        if needed:
            self._required.append(name)

    def declaration(self, language: Language) -> Declaration | None:
        """The tool; None if it can't be one. What its comment says of parameters that are none is doubted."""
        if not self._fine:
            return None
        for said in self._doc.entries:
            if said.split(".")[0] not in self._properties:
                comment = "docstring" if language == "python" else "comment"
                message = f"the {comment} of '{self._function}' describes '{said}', which is no parameter"
                hint = did_you_mean(said, self._properties) or ""
                self._script.warning("docstring_parameter", message, self._line, hint=hint)
        return Declaration(
            name=self._name,
            description=self._doc.description,
            parameters=parameters(self._properties, self._required),
            file=self._script.file,
            function=self._function,
            line=self._line,
            language=language,
            interpreter=self._script.interpreter,
        )
