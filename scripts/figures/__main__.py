"""Print the figures that the plan of the house is held to; compare them with another checkout's.

    python scripts/figures source     files, lines, statements, imports, public names, tests
    python scripts/figures rooms      arrows between rooms, names of several classes
    python scripts/figures calls      calls into this package, and files of it, that one verb takes
    python scripts/figures digests    of the demo's datasets on the disk, and of all samplers' draws
    python scripts/figures start      a session's start: from ``python`` to the first batch

All measure the package of the Python that runs them: another environment's Python prints the
figures of the checkout that is installed there.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
FIGURES = ("source", "rooms", "calls", "digests", "start")

if __name__ == "__main__":
    wanted = sys.argv[1:] or ["source"]
    if unknown := set(wanted) - {*FIGURES}:
        sys.exit(f"There are no figures {', '.join(unknown)}. Expected {', '.join(FIGURES)}.")
    for name in wanted:
        print(json.dumps({name: import_module(name).figures()}, indent=1))
