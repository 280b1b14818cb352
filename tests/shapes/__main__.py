"""Run all variants of a program, and print what came of each: ``python -m tests.shapes sac``."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from torchrl.data.datasets import d4rl

from tests.shapes.homes import ADDRESSES, made_home
from tests.shapes.variants import run_all

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= made_home(Path(folder))
        d4rl.D4RL_DATASETS |= ADDRESSES
        print(json.dumps(run_all(sys.argv[1])))
