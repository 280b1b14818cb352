"""``python -m datasets_cli`` is the command ``rlds``."""

from __future__ import annotations

from datasets_cli.cli.main import run

if __name__ == "__main__":
    run()
