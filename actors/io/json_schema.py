"""Validation of values against JSON Schemas (2020-12, or the draft of a schema's `$schema`).

Schemas come from files, from tools and from untrusted servers, so nothing in them is taken for granted:

- `$ref`s to other documents are not fetched; the metaschemas are known.
- A schema without `$schema` whose keywords are only valid in an older draft is read in that draft: `exclusiveMinimum`
  as a boolean belongs to draft 4, `items` as a list and `dependencies` belong to draft 7.
- Patterns are ECMA-262's, as the specification says and as schemas from TypeScript are written: `\\p{L}`,
  `(?<year>...)`, `\\d` for ASCII digits alone. The library's own keywords use Python's `re`, which rejects some of
  these and interprets others differently (`$` before a line end). So `pattern` and related keywords are replaced.
- The library raises all kinds of errors for an invalid schema (AttributeError, TypeError, ...). None of them leaves
  this module: `schema_problem` finds them beforehand, and a check reports the error in the schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

LIBRARY = ("jsonschema", "referencing.exceptions")
"""Libraries that a task awaits with `imported` before its first validation."""

SHOWN = 5
"""Maximum number of errors reported per value."""


_ENDLESS = "$: the value is nested too deeply to be validated, or the schema refers to itself without end"

_SEARCH_SECONDS = 2.0
"""Timeout of one pattern search in seconds; patterns that backtrack without end are errors of the schema."""


class NoSchema(Exception):
    """The schema is unusable. The text gives the reason, without the validated value."""


def schema_errors(value: Any, schema: dict[str, Any] | bool) -> list[str]:
    """Return the first `SHOWN` violations of a schema, one sentence each, with the path; empty if the value is valid.

    An unusable schema counts as a violation.
    """
    try:
        return misfits(validator(json.dumps(schema)), value)
    except NoSchema as error:
        return [str(error)]


def errors_by(check: Validator, value: Any) -> list[str]:
    """Return the violations like `schema_errors`, with a cached `validator` instead of a schema; an unusable schema
    counts as a violation.
    """
    try:
        return misfits(check, value)
    except NoSchema as error:
        return [str(error)]


def misfits(check: Validator, value: Any) -> list[str]:
    """Return the violations like `errors_by`, but raise for an unusable schema.

    Raises:
        NoSchema: the schema is unusable.
    """
    from referencing.exceptions import Unresolvable

    try:
        errors = sorted(check.iter_errors(value), key=lambda error: list(map(str, error.path)))
    except Unresolvable as error:
        raise NoSchema(f"the schema refers to a definition that it does not contain: {error}"[:300]) from error
    except NoSchema:
        raise
    except RecursionError:
        return [_ENDLESS]
    except Exception as error:  # the library trusts schemas, and fails on invalid ones in any way
        raise _none(check.schema, error) from error
    except BaseException as error:  # the library's registry is in Rust, which turns a RecursionError into a panic
        if type(error).__name__ != "PanicException":
            raise
        return [_ENDLESS]
    return [f"{error.json_path}: {error.message[:300]}" for error in errors[:SHOWN]]


# --- invalid schemas --------------------------------------------------------------------------------------


def schema_problem(schema: Any) -> tuple[tuple[str | int, ...], str] | None:
    """Return the path and text of an error in a schema; None if it is valid.

    Checks the keywords of its draft (`type: objekt`, `properties: {topic: text}`), patterns, and references within it.
    Blocks: the library is imported.
    """
    if is_plain(schema):
        return None
    from jsonschema.exceptions import best_match

    kind = _draft(schema)
    try:
        check = kind(kind.META_SCHEMA)
        error = best_match(check.iter_errors(schema))
    except RecursionError:
        return (), "the schema is nested too deeply"
    if error is not None:
        return tuple(error.absolute_path), _metaschema_error(error)
    parts = list(_parts(schema))
    is_one_document = not any(path and ("$id" in part or "id" in part) for path, part in parts)
    for path, part in parts:
        for pattern, key in _patterns(part):
            try:
                ecma(pattern)
            except NoSchema as wrong:
                return (*path, *key), str(wrong)
        reference = part.get("$ref") if is_one_document else None
        if isinstance(reference, str) and reference.startswith("#/") and not _leads_somewhere(schema, reference):
            return (*path, "$ref"), f"'{reference}', to which the schema refers, is not in the schema"
    return None


def is_plain(schema: Any, depth: int = 0) -> bool:
    """Return True for a schema with only the commonest keywords and valid values. Needs no library."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict) or depth > _PLAIN_DEPTH:
        return False
    for key, value in schema.items():
        if key == "properties":
            fine = isinstance(value, dict) and all(is_plain(each, depth + 1) for each in value.values())
        elif key in ("items", "additionalProperties"):
            fine = is_plain(value, depth + 1)
        elif key in ("title", "description"):
            fine = isinstance(value, str)
        elif key == "required":
            fine = _are_names(value) and len(set(value)) == len(value)
        elif key == "enum":
            fine = isinstance(value, list) and bool(value)
        elif key in ("type", "minimum", "maximum"):
            fine = value != [] and _PLAIN[key](value)
        else:
            fine = key in ("default", "examples", "const")
        if not fine:
            return False
    return True


_PLAIN_DEPTH = 20

_CLASSES: dict[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "null": (type(None),),
    "number": (int, float),
    "object": (dict,),
    "string": (str,),
}


def surely_fits(value: Any, schema: Any, depth: int = 0) -> bool:
    """Return True if a value fits a schema with only the commonest keywords; otherwise False, and a validator decides.

    Nearly all tool calls can be checked this way. The library takes a hundred times as long, and a second to import.
    """
    if type(schema) is not dict or depth > _PLAIN_DEPTH:
        return schema is True
    for word, wanted in schema.items():
        if word == "type":
            if type(wanted) is not str or wanted not in _CLASSES or type(value) not in _CLASSES[wanted]:
                return False
        elif word == "properties":
            if type(wanted) is not dict or type(value) is not dict:
                return False
            for name, part in wanted.items():
                if name in value and not surely_fits(value[name], part, depth + 1):
                    return False
        elif word == "required":
            if type(wanted) is not list or type(value) is not dict:
                return False
            for name in wanted:
                if name not in value:
                    return False
        elif word == "additionalProperties":
            known = schema.get("properties", {})
            if type(known) is not dict or type(value) is not dict:
                return False
            if wanted is not True and not all(
                name in known or surely_fits(each, wanted, depth + 1) for name, each in value.items()
            ):
                return False
        elif word == "items":
            if type(value) is not list or not all(surely_fits(each, wanted, depth + 1) for each in value):
                return False
        elif word == "enum":
            if type(wanted) is not list or type(value) is not str or value not in wanted:
                return False
        elif word not in _NOTES:
            return False
    return True


_NOTES = frozenset({"title", "description", "default", "examples"})


def _metaschema_error(error: ValidationError) -> str:
    """Return a short description of a violation of the metaschema."""
    if isinstance(error.instance, str | bool | int | float) and error.validator == "type":
        kinds = error.validator_value
        wanted = [str(kind) for kind in (kinds if isinstance(kinds, list) else [kinds])]
        shown = json.dumps(error.instance)
        return f"{shown} is not of type {' or '.join(wanted)}"
    at_type = isinstance(error.instance, str) and list(error.absolute_path)[-1:] == ["type"]
    if error.validator in ("anyOf", "enum") and at_type:
        return f"{json.dumps(error.instance)} is not a JSON Schema type; the types are: {', '.join(_TYPES)}"
    return error.message[:200]


_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_ONE = ("additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems")
_MORE_ONES = ("unevaluatedItems", "unevaluatedProperties")
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")


def _parts(schema: Any) -> Iterator[tuple[tuple[str | int, ...], dict[str, Any]]]:
    """Yield a schema and all its subschemas, with their paths."""
    waiting: list[tuple[tuple[str | int, ...], Any]] = [((), schema)]
    while waiting:
        path, part = waiting.pop()
        if not isinstance(part, dict):
            continue
        yield path, part
        waiting += [((*path, key), part.get(key)) for key in (*_ONE, *_MORE_ONES)]
        for key in _SEVERAL:
            if isinstance(several := part.get(key), list):
                waiting += [((*path, key, at), each) for at, each in enumerate(several)]
        for key in _NAMED:
            if isinstance(named := part.get(key), dict):
                waiting += [((*path, key, name), each) for name, each in named.items()]


def _patterns(part: dict[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if isinstance(part.get("pattern"), str):
        yield part["pattern"], ("pattern",)
    if isinstance(several := part.get("patternProperties"), dict):
        for pattern in several:
            yield pattern, ("patternProperties", pattern)


def _leads_somewhere(schema: Any, reference: str) -> bool:
    from urllib.parse import unquote

    found = schema
    for key in unquote(reference[2:]).split("/"):
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and key.isdigit() and int(key) < len(found):
            found = found[int(key)]
        elif isinstance(found, dict) and key in found:
            found = found[key]
        else:
            return False
    return True


# --- partial validation -----------------------------------------------------------------------------------


def quick(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an untrusted schema that can be checked quickly: types, names, bounds, choices.

    Omitted are keywords that can make a check take forever (patterns, references that fan out), and keywords that
    depend on them. So a value that fits the schema fits the result; the reverse is for the schema's owner to check.
    """
    if "$ref" in schema or "$dynamicRef" in schema or "$recursiveRef" in schema:
        return {}
    if "$schema" in schema and not _known_draft(schema["$schema"]):
        return {}  # a custom dialect, in which these keywords may mean nothing
    kept = {key: schema[key] for key in _PLAIN if key in schema and _PLAIN[key](schema[key])}
    properties = schema.get("properties")
    if isinstance(properties, dict):
        kept["properties"] = {name: _quick(each) for name, each in properties.items()}
        if schema.get("additionalProperties") is False and "patternProperties" not in schema:
            kept["additionalProperties"] = False
    if isinstance(schema.get("items"), dict) and "prefixItems" not in schema:
        kept["items"] = _quick(schema["items"])
    if isinstance(schema.get("anyOf"), list):
        kept["anyOf"] = [_quick(each) for each in schema["anyOf"]]
    return kept


def _quick(schema: Any) -> Any:
    if isinstance(schema, dict):
        return quick(schema)
    return schema if isinstance(schema, bool) else {}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_type(value: Any) -> bool:
    return all(isinstance(each, str) and each in _TYPES for each in (value if isinstance(value, list) else [value]))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


_PLAIN = {
    "$schema": lambda value: isinstance(value, str),
    "type": _is_type,
    "enum": lambda value: isinstance(value, list),
    "const": lambda _: True,
    "required": _are_names,
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _is_number),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _is_number),
}
"""Keywords that are retained if their value is valid."""


# --- validators -------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def validator(schema: str) -> Validator:
    """Return the validator of a schema, given as JSON text.

    Raises:
        NoSchema: the schema is unusable.
    """
    from jsonschema import validators

    library: Any = validators
    parsed = json.loads(schema)
    try:
        made: Validator = _draft(parsed)(parsed, registry=library.SPECIFICATIONS)  # only metaschemas
        return made
    except Exception as error:  # as in `misfits`
        raise _none(parsed, error) from error


def _none(schema: Any, error: Exception) -> NoSchema:
    found = schema_problem(schema)
    why = f"at {'.'.join(map(str, found[0])) or '$'}: {found[1]}" if found else f"{type(error).__name__}: {error}"
    return NoSchema(f"the schema is not a valid JSON Schema: {why}"[:300])


def _draft(schema: Any) -> Any:
    """Return the validator class for a schema: of its declared draft, or of the only draft in which it is valid."""
    from jsonschema import Draft4Validator, Draft7Validator, Draft202012Validator
    from jsonschema.validators import validator_for

    if isinstance(schema, dict) and isinstance(schema.get("$schema"), str):
        return _ecmascript(validator_for(schema, default=Draft202012Validator))
    chosen: Any = Draft202012Validator
    for _, part in _parts(schema):
        if isinstance(part.get("exclusiveMinimum"), bool) or isinstance(part.get("exclusiveMaximum"), bool):
            return _ecmascript(Draft4Validator)
        if isinstance(part.get("items"), list) and "prefixItems" not in part:
            chosen = Draft7Validator
        if isinstance(part.get("dependencies"), dict) and not _NEWER & part.keys():
            chosen = Draft7Validator
    return _ecmascript(chosen)


_NEWER = frozenset({"dependentSchemas", "dependentRequired", "prefixItems", "unevaluatedProperties", "$dynamicRef"})
"""Keywords that are unknown to drafts with `dependencies`."""

_Unknown: Any = object()


def _known_draft(url: Any) -> bool:
    from jsonschema.validators import validator_for

    return isinstance(url, str) and validator_for({"$schema": url}, default=_Unknown) is not _Unknown


@lru_cache(maxsize=16)
def _ecmascript(kind: Any) -> Any:
    """Return a validator class with ECMA-262's patterns."""
    from jsonschema import validators

    own: dict[str, Any] = {"pattern": _pattern, "patternProperties": _pattern_properties}
    own["additionalProperties"] = _additional_properties
    make: Any = validators.extend
    return make(kind, {name: check for name, check in own.items() if name in kind.VALIDATORS})


def _found(pattern: str, text: str) -> bool:
    try:
        return ecma(pattern).search(text, timeout=_SEARCH_SECONDS) is not None
    except TimeoutError:
        raise NoSchema(
            f"matching the schema's pattern {pattern!r} takes too long; simplify the pattern"[:300]
        ) from None


def _pattern(check: Any, pattern: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if check.is_type(value, "string") and not _found(pattern, value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _pattern_properties(check: Any, patterns: Any, value: Any, _schema: Any) -> Iterator[ValidationError]:
    if check.is_type(value, "object"):
        for pattern, part in patterns.items():
            for name, each in value.items():
                if _found(pattern, name):
                    yield from check.descend(each, part, path=name, schema_path=pattern)


def _additional_properties(check: Any, wanted: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if not check.is_type(value, "object"):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    extras = [name for name in value if name not in known and not any(_found(pattern, name) for pattern in patterns)]
    if isinstance(wanted, dict):
        for name in extras:
            yield from check.descend(value[name], wanted, path=name)
    elif not wanted and extras:
        were = "was" if len(extras) == 1 else "were"
        shown = ", ".join(map(repr, sorted(extras)))
        if patterns:
            verb = "does" if len(extras) == 1 else "do"
            named = ", ".join(map(repr, sorted(patterns)))
            yield ValidationError(f"{shown} {verb} not match any of the regexes: {named}")
        else:
            yield ValidationError(f"Additional properties are not allowed ({shown} {were} unexpected)")


# --- patterns of ECMA-262 ---------------------------------------------------------------------------------

_PIECE = re.compile(
    r"\\c[A-Za-z]|\\u\{[0-9A-Fa-f]{1,6}\}|\\u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}"
    r"|\\x[0-9A-Fa-f]{2}|\\[pP]\{[^}]*\}|\\k<[^>]*>|\\.|\[\^?\]|\{\d+(?:,\d*)?\}|.",
    re.DOTALL,
)
_IN_ECMA = {"d": "0-9", "w": "A-Za-z0-9_", "s": r"\s\ufeff"}
_NOT_IN_ECMA = frozenset("aACeEFgGhHIjJKlLmMNoOqQRTUXyYzZ")
"""Letters that are an escape in Python's patterns and literal in ECMA-262's."""


@lru_cache(maxsize=512)
def ecma(pattern: str) -> Any:
    """Compile a pattern of ECMA-262.

    Raises:
        NoSchema: it is invalid.
    """
    import regex

    try:
        return regex.compile(_translated(pattern))
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise NoSchema(f"{pattern!r} is not a valid regular expression ({error})"[:300]) from error


def _translated(pattern: str) -> str:
    found: list[str] = []
    in_set = False
    for piece in _PIECE.findall(pattern):
        if piece[0] == "\\":
            found.append(_escape(piece, in_set))
        elif in_set:
            in_set = piece != "]"
            found.append("\\[" if piece == "[" else piece)
        elif piece in ("[]", "[^]"):
            found.append(r"(?!)" if piece == "[]" else r"[\s\S]")
        elif piece == "[":
            in_set = True
            found.append(piece)
        else:
            found.append({"$": r"\Z", ".": r"[^\n\r\u2028\u2029]", "{": r"\{"}.get(piece, piece))
    return "".join(found)


def _escape(piece: str, in_set: bool) -> str:
    kind, rest = piece[1:2], piece[2:]
    if kind == "k" and rest:
        return f"(?P={rest[1:-1]})"
    if kind == "c" and rest:
        return f"\\x{ord(rest) % 32:02x}"
    if kind == "u" and rest:
        code = rest.strip("{}").partition("\\")[0]
        number = int(code, 16)
        if "\\" in rest:
            number = 0x10000 + ((number - 0xD800) << 10) + int(rest[-4:], 16) - 0xDC00
        return f"\\U{number:08x}" if number <= 0x10FFFF else piece
    if kind in _IN_ECMA:
        return _IN_ECMA[kind] if in_set else f"[{_IN_ECMA[kind]}]"
    if kind.lower() in _IN_ECMA and not in_set:
        return f"[^{_IN_ECMA[kind.lower()]}]"
    if kind in _NOT_IN_ECMA and not rest:
        return kind
    return "/" if kind == "/" else piece
