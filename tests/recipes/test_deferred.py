"""What ``deferred`` puts off: the import of a reader, until something is read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from datasets_cli.recipe import deferred


def test_a_deferred_function_is_imported_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_reader.py").write_text("def read(source):\n    yield from source\n")
    monkeypatch.syspath_prepend(tmp_path)
    read = deferred("late_reader:read")
    assert "late_reader" not in sys.modules
    assert list(read([1, 2])) == [1, 2]
    assert sys.modules.pop("late_reader").read is not read


@pytest.mark.parametrize("address", ["no_such_reader:read", "json:read"])
def test_a_wrong_address_fails_when_it_is_called(address: str) -> None:
    read = deferred(address)
    with pytest.raises((ImportError, AttributeError)):
        read([])
