"""The code of an answer, without what stands around it."""

from __future__ import annotations

import pytest

from callboard.cli.loki.execute import code_of

PYTHON = "def f():\n    return 1"


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (f"```python\n{PYTHON}\n```", PYTHON),
        (f"Here it is:\n\n```python\n{PYTHON}\n```\n\nIt returns 1.", PYTHON),
        (f"~~~\n{PYTHON}\n~~~", PYTHON),
        ("one:\n```sh\na\n```\ntwo:\n```sh\nb\n```\n", "a\n\nb"),
        (f"```python\n{PYTHON}", PYTHON),  # the reply was cut off
        ("````md\n```sh\na\n```\n````", "```sh\na\n```"),
        ("   ```\n   a\n   ```", "   a"),
        ("```\n\n```", ""),
        (PYTHON, PYTHON),
        ("", ""),
        ("```one line``` is no fence", "```one line``` is no fence"),
        ("```js\r\nlet a\r\n```\r\n", "let a"),
    ],
)
def test_code_of(answer: str, code: str) -> None:
    assert code_of(answer) == code
