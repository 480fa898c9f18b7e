"""Code generators make clients of our schemas: datamodel-codegen (Python) and openapi-typescript."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from interop.environments import INSTALLED, needs
from support.waiting import PATIENCE

from callboard.protocol.control.schema import json_schema

NODE = INSTALLED / "node/node_modules"
OPENAPI = Path(__file__).parents[1] / "golden/openapi.json"
EVENT = {"schema_version": 1, "seq": 1, "ts": "2026-11-03T10:00:00Z", "run": "r", "actor": "/r", "kind": "llm.delta"}

CHECK = """
import json, sys
import client
good, bad = json.load(sys.stdin)
event = client.RunEvent.model_validate(good).event.root
assert type(event).__name__ == "LlmDeltaEvent", type(event)
assert event.data.text == "x"
try:
    client.RunEvent.model_validate(bad)
except ValueError:
    print("typed")
"""


def run(*command: str | Path, stdin: str = "", cwd: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)), input=stdin, text=True, capture_output=True, timeout=5 * PATIENCE, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@needs("codegen")
@pytest.mark.full
@pytest.mark.timeout(6 * PATIENCE)
def test_datamodel_codegen_makes_one_module_of_typed_frames(tmp_path: Path) -> None:
    (tmp_path / "control.json").write_text(json.dumps(json_schema()))
    run(
        INSTALLED / "codegen/bin/datamodel-codegen", "--input", "control.json", "--input-file-type", "jsonschema",
        "--output", "client.py", "--output-model-type", "pydantic_v2.BaseModel", cwd=tmp_path,
    )  # fmt: skip
    good = {"subscription": "s1", "run": "r", "event": {**EVENT, "data": {"text": "x"}}}
    bad = {**good, "event": {**EVENT, "data": {"text": 5}}}
    (tmp_path / "check.py").write_text(CHECK)
    said = run(INSTALLED / "codegen/bin/python", "check.py", stdin=json.dumps([good, bad]), cwd=tmp_path)
    assert said == "typed\n"


@needs("node")
@pytest.mark.full
@pytest.mark.timeout(6 * PATIENCE)
def test_openapi_typescript_makes_types_that_compile(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(OPENAPI.read_text())
    node = NODE / "node/bin/node"
    run(node, NODE / "openapi-typescript/bin/cli.js", "api.json", "-o", "api.d.ts", cwd=tmp_path)
    uses = 'import type { components } from "./api";\n'
    uses += 'const code: components["schemas"]["ErrorShape"]["code"] = "usage";\nconsole.log(code);\n'
    (tmp_path / "uses.ts").write_text(uses)
    run(node, NODE / "typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "uses.ts", cwd=tmp_path)


TYPED = """
import type { components } from "./control";

type Schemas = components["schemas"];

export function text(frame: Schemas["RunEvent"]): string {
  const event = frame.event;
  return event.kind === "llm.delta" ? event.data.text : event.kind;
}

export const start: Schemas["StartRun"] = { target: "agent", prompt: "hi" };
// @ts-expect-error - a number is no prompt
export const wrong: Schemas["StartRun"] = { target: "agent", prompt: 5 };
"""


@needs("node")
@pytest.mark.full
@pytest.mark.timeout(6 * PATIENCE)
def test_openapi_typescript_makes_typed_frames_of_the_control_schema(tmp_path: Path) -> None:
    # The generator reads OpenAPI only, whose components are JSON Schemas of the same dialect.
    schemas = json.loads(json.dumps(json_schema()["$defs"]).replace("#/$defs/", "#/components/schemas/"))
    whole = {"openapi": "3.1.0", "info": {"title": "control", "version": "1"}, "paths": {}}
    (tmp_path / "control.json").write_text(json.dumps({**whole, "components": {"schemas": schemas}}))
    node = NODE / "node/bin/node"
    made = ("control.json", "--default-non-nullable", "false", "-o", "control.d.ts")
    run(node, NODE / "openapi-typescript/bin/cli.js", *made, cwd=tmp_path)
    (tmp_path / "uses.ts").write_text(TYPED)
    run(node, NODE / "typescript/bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "uses.ts", cwd=tmp_path)
