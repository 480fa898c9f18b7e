"""schemathesis (`.venv/interop/control`) over our OpenAPI document: `fuzz.py BASE_URL TOKEN`; prints what it found.

The same requests each time: few of them, from one seed. A request may be refused, but in the words of the document.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore")

import schemathesis  # noqa: E402
from hypothesis import HealthCheck, Phase, given, seed, settings  # noqa: E402
from hypothesis.errors import Unsatisfiable  # noqa: E402
from schemathesis.checks import CHECKS, load_all_checks  # noqa: E402

EXAMPLES = 4
MODES = (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE)
CHECKED = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
"""What has to hold of every reply; that a valid request is taken can't, since the names in it are made up."""


def main(base: str, token: str) -> dict[str, Any]:
    """How many operations there are, and what is wrong with them."""
    headers = {"Authorization": f"Bearer {token}"}
    load_all_checks()
    checks = [CHECKS.get_one(name) for name in CHECKED]
    problems: list[str] = []
    operations = [result.ok() for result in schemathesis.openapi.from_url(f"{base}/openapi.json").get_all_operations()]
    for operation in operations:
        for mode in MODES:
            problems += tried(operation, operation.as_strategy(generation_mode=mode), headers, checks)
    return {"operations": len(operations), "problems": problems}


def tried(operation: Any, strategy: Any, headers: dict[str, str], checks: list[Any]) -> list[str]:
    """What is wrong with one of them."""

    @seed(7)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def ask(case: Any) -> None:
        response = case.call(headers=headers, timeout=60)
        assert response.status_code != 500, f"{case.as_curl_command()}: {response.text}"
        case.validate_response(response, checks=checks)

    try:
        ask()
    except Unsatisfiable:
        return []
    except BaseException as error:  # noqa: BLE001 - what was found, with the request that shows it
        return [f"{operation.label}: {error}"]
    return []


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
