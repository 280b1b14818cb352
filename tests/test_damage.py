"""What errors of damage end with: the command that repairs it, where the id is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from datasets_cli.core.system_errors import damaged


@pytest.mark.parametrize("content", ["{", "{}", '{"id": "/?app", "name": "a web page"}'])
def test_the_id_follows_from_the_folder_whatever_its_manifest_says(
    content: str, tmp_path: Path
) -> None:
    folder = tmp_path / "datasets" / "atari_dqn" / "Pong" / "5~ckpt0-5"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(content)
    for path in (folder, folder / "manifest.json", folder / "next" / "reward.memmap"):
        expected = "It is empty. Run: rlds repair 'atari_dqn/Pong/5~ckpt0-5'"
        assert str(damaged(path, "It is empty")) == expected


def test_a_folder_of_nobody_has_no_id(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    error = damaged(tmp_path / "dump" / "x.memmap", "It is empty")
    assert error.advice is not None
    assert "rlds download or preprocess" in error.advice and "repair" not in error.advice
