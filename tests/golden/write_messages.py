"""Write tests/golden/messages.txt: the texts of the product, by id (support/messages.py). `make golden` does that."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.messages import GOLDEN, golden

if __name__ == "__main__":
    GOLDEN.write_text(golden(), encoding="utf-8")
