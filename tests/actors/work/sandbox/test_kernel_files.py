"""Files of the kernel, devices, and privileges as a sandboxed process has them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sandbox_surroundings import BACKENDS, PYTHON_ALONE, need, world

OPEN_ALL = """
import errno, os, sys
for path in open(sys.argv[1]).read().split('\\n'):
    try: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error: print(errno.errorcode[error.errno], path)
    else: print('OPENED', path)
"""

SHAPE = """
import json, os, stat
nodes = []
for top, directories, files in os.walk('/dev'):
    for name in files:
        mode = os.lstat(f'{top}/{name}').st_mode
        if stat.S_ISCHR(mode) or stat.S_ISBLK(mode): nodes.append(f'{top}/{name}')
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
sets = [int(status[name], 16) for name in ('CapPrm', 'CapEff', 'CapInh', 'CapAmb')]
print(json.dumps([nodes, sets, status['NoNewPrivs']]))
"""

FOR_FILES_OF_OTHERS = 1 << 0 | 1 << 1 | 1 << 3  # CHOWN, DAC_OVERRIDE, FOWNER


def writable_outside() -> Iterator[str]:
    """Yield the files below /proc and /sys that have a mode for writing; of processes only our own are looked at."""
    for top in ("/proc", "/proc/self", "/sys"):
        for directory, folders, names in os.walk(top):
            if directory == "/proc":
                folders[:] = [name for name in folders if not name.isdigit()]
            if directory == "/proc/self":
                folders.remove("task")  # named by the ids of our threads
            for name in names:
                path = os.path.join(directory, name)  # noqa: PTH118 - five thousand of them
                try:
                    mode = os.lstat(path).st_mode
                except OSError:
                    continue  # it is gone
                if stat.S_ISREG(mode) and mode & 0o222 and os.access(path, os.W_OK):
                    yield path


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("profile", ["workspace", "read-only"])
@pytest.mark.sample(2)
async def test_no_file_of_the_kernel_can_be_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str, profile: str
) -> None:
    need(backend, monkeypatch)
    paths = sorted(writable_outside())
    assert "/proc/self/comm" in paths
    with world(tmp_path) as there:
        listed = there.workspace / "paths"
        listed.write_text("\n".join(paths))
        done = await there.run([*PYTHON_ALONE, OPEN_ALL, str(listed)], there.sandbox(profile=profile))
    assert done.status == 0, done.stderr_tail
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(paths)
    assert [line for line in lines if line.startswith("OPENED")] == []


async def test_devices_are_the_usual_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("bubblewrap", monkeypatch)
    with world(tmp_path) as there:
        done = await there.run([*PYTHON_ALONE, SHAPE], there.sandbox())
    nodes, _, _ = json.loads(done.stdout)
    usual = ("null", "zero", "full", "random", "urandom", "tty", "pts/ptmx", "ptmx")
    assert {node.removeprefix("/dev/") for node in nodes} <= set(usual)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_device_node_in_the_workspace_can_not_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    if os.geteuid() != 0 or backend == "landlock":
        pytest.skip("only root can make the node, and Landlock allows what the mode of a file in a workspace allows")
    with world(tmp_path) as there:
        os.mknod(there.workspace / "node", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        code = "import os\ntry: os.open('node', os.O_RDWR)\nexcept OSError as error: print(error.errno)"
        done = await there.run([*PYTHON_ALONE, code], there.sandbox())
    assert done.stdout.strip() == b"13"


@pytest.mark.parametrize("backend", BACKENDS)
async def test_root_keeps_only_capabilities_for_files_of_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    with world(tmp_path) as there:
        done = await there.run([*PYTHON_ALONE, SHAPE], there.sandbox())
    _, capabilities, gains_nothing = json.loads(done.stdout)
    assert gains_nothing.strip() == "1"  # so the bounding set, which bubblewrap leaves as it is, gives nothing back
    for each in capabilities:
        assert each & ~FOR_FILES_OF_OTHERS == 0


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_directory_of_the_kernel_is_no_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    need(backend, monkeypatch)
    code = "import os\ntry: os.open('/proc/sys/kernel/hostname', os.O_WRONLY)\nexcept OSError: print('refused')"
    with world(tmp_path) as there:
        done = await there.run([*PYTHON_ALONE, code], there.sandbox(here=Path("/proc/sys/kernel")))
    assert done.stdout == b"refused\n"
