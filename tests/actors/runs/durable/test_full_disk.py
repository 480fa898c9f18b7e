"""A run whose disk gets full, at each row, waits before its next effect, and goes on when there is room."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fake_models import FakeModels

sys.path.insert(0, str(Path(__file__).parent))

from everything import EFFECTS, KilledRun
from test_kills import ROWS, check_end, some

SIZE = "8m"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "state"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can't be mounted here: that takes root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("row", some("full disk", list(range(1, ROWS + 1)), ROWS // 20))
async def test_full_at_any_row_it_goes_on_when_there_is_room_and_loses_and_repeats_nothing(
    disk: Path, tmp_path: Path, fake_model: FakeModels, row: int
) -> None:
    killed_run = KilledRun(tmp_path, fake_model)
    told = tmp_path / "told"
    said = await killed_run.play(full=row, disk=str(disk), world=str(killed_run.world), told=str(told))
    check_end(said)
    assert len(killed_run.rows()) == ROWS
    assert killed_run.effects == dict.fromkeys(EFFECTS, 1)
    done, about_to_be = map(int, told.read_text().split())
    assert done <= about_to_be, "no effect begins that is not on the disk"
