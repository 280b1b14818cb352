"""Real disks for tests: in memory, of a given size, mounted in the place of a folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Disks:
    """Mounts, and takes all of them away again; a machine where none may be made skips the test."""

    def __init__(self) -> None:
        self._mounted: list[Path] = []

    def put(self, folder: Path, size_bytes: int = 1 << 26, kind: str = "tmpfs") -> None:
        """Have what is in a folder, which may not be there yet, on a disk of its own."""
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder.parent / f".{folder.name}.aside"
        shutil.copytree(folder, aside, symlinks=True)
        self._mount(folder, "-t", kind, "-o", f"size={size_bytes},mode=755", kind)
        shutil.copytree(aside, folder, symlinks=True, dirs_exist_ok=True)
        shutil.rmtree(aside)

    def bind(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._mount(folder, "--bind", str(folder))

    def layer(self, below: Path, folder: Path, changes: Path) -> None:
        """Have a folder show another as a container shows its image: changes go to a third."""
        folder.mkdir()
        self.put(changes)
        for name in ("upper", "work"):
            (changes / name).mkdir()
        places = f"lowerdir={below},upperdir={changes / 'upper'},workdir={changes / 'work'}"
        self._mount(folder, "-t", "overlay", "-o", places, "overlay")

    def remount(self, folder: Path, options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", folder], check=True)

    def close(self) -> None:
        while self._mounted:
            subprocess.run(["umount", "--lazy", self._mounted.pop()], check=True)

    def _mount(self, folder: Path, *options: str) -> None:
        command = ["mount", *options, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a disk is mounted here, which takes root: {done.stderr.strip()}")
        self._mounted.append(folder)
