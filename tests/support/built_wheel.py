"""The wheel of this checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP_LEVEL = ("actors", "cli", "protocol", "supervisors")


def build(source: Path, built: Path) -> Path:
    """Build it in `built` from a copy in `source`: nothing is left in the checkout, and nothing stale gets in."""
    for path in sources():
        target = source / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / path).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(built), str(source)], check=True, capture_output=True)
    (file,) = built.glob("callboard-*.whl")
    return file


def sources() -> list[Path]:
    """What a checkout holds, seen from its root, without what is built or installed into it."""
    found = [
        Path(name) for name in ("__init__.py", "__main__.py", "py.typed", "pyproject.toml", "README.md", "LICENSE")
    ]
    for folder in (*TOP_LEVEL, "examples", "tests", "benchmarks"):
        found += [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.is_file()]
    return [path for path in found if "__pycache__" not in path.parts]
