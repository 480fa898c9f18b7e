"""Reports of case results for other programs: JUnit XML and JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree as ET

from .run_cases import CaseResult

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(results: Sequence[CaseResult]) -> bytes:
    """Return the results as JUnit XML, with a suite for each file."""
    top = ET.Element("testsuites", _counts(results))
    for file in dict.fromkeys(result.file for result in results):
        of_file = [result for result in results if result.file == file]
        suite = ET.SubElement(top, "testsuite", {"name": file, **_counts(of_file)})
        for result in of_file:
            about = {"name": _text(result.name), "classname": file, "file": file, "line": str(result.line)}
            case = ET.SubElement(suite, "testcase", {**about, "time": f"{result.seconds:.3f}"})
            if result.failures:
                first = _text(result.failures[0].splitlines()[0])
                failure = ET.SubElement(case, "failure", {"message": first})
                failure.text = _text("\n".join(result.failures))
            if result.outcome is not None and result.outcome.output:
                ET.SubElement(case, "system-out").text = _text(result.outcome.output)
    ET.indent(top)
    data: bytes = ET.tostring(top, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def as_wire(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the results as `-o json` prints them."""
    return {
        "schema_version": 1,
        "passed": sum(result.status == "passed" for result in results),
        "failed": sum(result.status == "failed" for result in results),
        "cases": [_wire(result) for result in results],
    }


def _wire(result: CaseResult) -> dict[str, Any]:
    return {
        "file": result.file,
        "line": result.line,
        "name": result.name,
        "status": result.status,
        "failures": list(result.failures),
        "seconds": round(result.seconds, 3),
        "cassette": result.cassette or None,
        "outcome": None if result.outcome is None else result.outcome.to_wire(),
    }


def _counts(results: Sequence[CaseResult]) -> dict[str, str]:
    return {
        "tests": str(len(results)),
        "failures": str(sum(result.status == "failed" for result in results)),
        "errors": "0",
        "skipped": "0",
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _text(text: str) -> str:
    """Return the text with characters that XML cannot hold replaced."""
    return _NOT_XML.sub("?", text)
