"""The demo files as pages of their publishers, at the addresses that the recipes ask for."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from urllib.parse import quote

from tests.support.paths import DEMO_DATA as DATA

COMMIT = "0" * 40
PUBLISHERS = {
    "d4rl": "http://rail.eecs.berkeley.edu/datasets/offline_rl/",
    "hf": "https://huggingface.co/",
    "openml": "https://www.openml.org/",
    "gcs": "https://storage.googleapis.com/",
}
"""What each folder of a server with these pages stands for."""


def pages() -> dict[str, bytes]:
    """Return every path, with its content."""
    served = {
        f"/d4rl/{path.relative_to(DATA / 'd4rl').as_posix()}": path.read_bytes()
        for path in (DATA / "d4rl").rglob("*.hdf5")
    }
    site = DATA / "openml"
    served |= {
        f"/openml/{path.relative_to(site).as_posix()}": path.read_bytes()
        for path in site.rglob("*")
        if path.is_file()
    }
    served |= bucket("atari-replay-datasets", "dqn", DATA / "atari_dqn")
    repository, folder = "farama-minari/D4RL", "door/human-v2/data"
    tree = []
    for path in sorted((DATA / "minari" / "D4RL" / folder).iterdir()):
        content = path.read_bytes()
        served[f"/hf/datasets/{repository}/resolve/{COMMIT}/{folder}/{path.name}"] = content
        entry = {"type": "file", "path": f"{folder}/{path.name}", "size": len(content)}
        digest = hashlib.sha256(content).hexdigest()
        tree.append(entry | {"lfs": {"oid": digest, "size": len(content)}})
    served[f"/hf/api/datasets/{repository}"] = json.dumps({"sha": COMMIT}).encode()
    served[f"/hf/api/datasets/{repository}/tree/{COMMIT}/{folder}"] = json.dumps(tree).encode()
    return served


def bucket(name: str, prefix: str, folder: Path) -> dict[str, bytes]:
    """Return the pages of a Google Cloud Storage bucket: its files, and one list of them all."""
    served, items = {}, []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content, key = path.read_bytes(), f"{prefix}/{path.relative_to(folder).as_posix()}"
        served[f"/gcs/{name}/{quote(key)}"] = content
        digest = base64.b64encode(hashlib.md5(content).digest()).decode()
        items.append({"name": key, "size": str(len(content)), "md5Hash": digest})
    served[f"/gcs/storage/v1/b/{name}/o"] = json.dumps({"items": items}).encode()
    return served
