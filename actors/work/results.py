"""Result type of a run, and conversion of a model's answer to an object of it.

The model gets the JSON Schema in its system prompt, and as the schema of its reply if the provider supports structured
output. Providers require an object there, so the schema of any other type is wrapped in an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, final

import msgspec

from ...protocol.errors import UsageError
from ...protocol.json_values import UnfitValue, values_in
from .typed_values import NotJsonType, Shape

KEY = "result"
"""Key of the wrapping object."""

# Models without a separate field for reasoning put it in <think> tags before the answer.
_THOUGHT = re.compile(r"\A\s*<think>.*?</think>\s*", re.DOTALL)


@final
class ResultType:
    """Result type of a run. Create it with `of`.

    Attributes:
        schema: JSON Schema of the model's answer, of type object.
        is_wrapped: the answer is an object that wraps the result.
    """

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.is_wrapped: Any = shape.schema.get("type") != "object"
        self.schema: dict[str, Any] = _wrapped(shape.schema) if self.is_wrapped else shape.schema

    @classmethod
    def of(cls, kind: Any) -> ResultType:
        """Return the result type for a Python type or a JSON Schema.

        Raises:
            UsageError: the type has no JSON Schema, or the schema is invalid.
        """
        if isinstance(kind, Mapping):
            return cls(Shape.of_schema(_checked(dict(kind))))
        try:
            # Only classes are cached: other annotations may be unhashable.
            return _of_type(kind) if isinstance(kind, type) else cls(Shape.of(kind))
        except NotJsonType as error:
            raise UsageError(f"`result` is {error}") from error
        except TypeError as error:
            raise UsageError(f"`result` must be a type or a JSON Schema, not {kind!r}") from error

    @classmethod
    def of_answer(cls, schema: dict[str, Any]) -> ResultType:
        """Return the result type for its `schema`, for a run whose program no longer exists."""
        properties = schema.get("properties", {})
        # The inverse of `_wrapped`.
        if list(properties) == [KEY] and schema.get("additionalProperties") is False:
            definitions = {"$defs": schema["$defs"]} if "$defs" in schema else {}
            return cls(Shape.of_schema({**properties[KEY], **definitions}))
        return cls(Shape.of_schema(schema))

    @property
    def hint(self) -> str:
        """Text for the system prompt that asks for an answer of this type."""
        return (
            "Your final answer must be one JSON value that fits this JSON Schema, and nothing else: no prose, no "
            f"fences.\n\n{msgspec.json.encode(self.schema).decode()}"
        )

    def read(self, text: str) -> Any:
        """Convert the first JSON value of a model's answer that fits the result type to an object of that type.

        Raises:
            UnfitValue: no JSON value in the answer fits; the text says where and why the first one does not.
        """
        # Models add prose or fences: try every JSON value in the text, and report the first misfit.
        first: UnfitValue | None = None
        for value in values_in(_THOUGHT.sub("", text)):
            try:
                return self._shape.convert(self._unwrapped(value))
            except UnfitValue as misfit:
                first = first or misfit
        raise first or UnfitValue("the answer is not JSON")

    def _unwrapped(self, value: Any) -> Any:
        return value[KEY] if self.is_wrapped and isinstance(value, dict) and set(value) == {KEY} else value


@lru_cache(maxsize=256)
def _of_type(kind: Any) -> ResultType:
    return ResultType(Shape.of(kind))


def _wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer = {"type": "object", "properties": {KEY: inner}, "required": [KEY], "additionalProperties": False}
    return {**outer, "$defs": schema["$defs"]} if "$defs" in schema else outer


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema after checking that it is valid and encodable.

    Raises:
        UsageError: the schema is invalid.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        msgspec.json.encode(schema)
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except (SchemaError, TypeError) as error:
        text = error.message if isinstance(error, SchemaError) else str(error)
        raise UsageError(f"`result` is not a valid JSON Schema: {text}") from error
    return schema
