"""Types of pydantic, which we never import, as parameters of tools and as results of runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import trio
from interop.environments import CONTROL, HERE, needs

pytestmark = needs("control")


async def test_pydantics_types_are_parameters_and_results(tmp_path: Path) -> None:
    (packages,) = CONTROL.parent.glob("lib/python*/site-packages")
    environ = {**os.environ, "CALLBOARD_CONFIG_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    program = [sys.executable, str(HERE / "clients/pydantic_types.py"), str(packages)]
    done = await trio.run_process(program, env=environ, capture_stdout=True, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
    found = json.loads(done.stdout.decode().splitlines()[-1])
    properties = found["schema"]["properties"]
    assert found["schema"]["required"] == ["items", "strict", "box", "whole", "packed", "count", "rest", "to"]
    assert properties["items"]["description"] == "What is ordered."
    assert properties["items"]["items"] == {"$ref": "#/$defs/Item"}
    assert found["schema"]["$defs"]["Item"]["properties"]["sku"]["minLength"] == 2
    assert (properties["count"]["exclusiveMinimum"], properties["count"]["description"]) == (3, "How many.")
    assert properties["rest"]["exclusiveMinimum"] == 2
    assert (properties["note"]["default"], properties["note"]["maxLength"]) == ("none", 5)
    assert properties["to"] == {"type": "string", "format": "path", "description": "Where it goes."}
    (good, _), (_, bad), (_, refused) = found["calls"]
    assert json.loads(good) == {"good": True, "items": [{"sku": "ab", "when": None}]}
    assert "count" in bad
    assert "note" in bad
    assert "there is no XX" in refused
    assert "at least 2 characters" in found["asked again"]
    assert found["result"] == ["Verdict", {"good": False, "items": [{"sku": "zz", "when": None}]}]
