"""What a page prints, and what we print, as one flat dict: ``{"next.done": "bool [128, 1]"}``."""

from __future__ import annotations

import re

LEAF = re.compile(r"(\w+): \w*Tensor\(shape=torch\.Size\(\[([\d, ]*)\]\),.* dtype=torch\.(\w+)")
GROUP = re.compile(r"(?:(\w+): )?\w*TensorDict\($")
BATCH = re.compile(r"batch_size=torch\.Size\(\[([\d, ]*)\]\)")


def printed(text: object) -> dict[str, str]:
    """Return the leaves of a printed TensorDict, and the batch sizes of its groups ("" its own)."""
    found: dict[str, str] = {}
    path: list[str] = []
    for line in str(text).splitlines():
        if group := GROUP.search(line):
            path.append(group[1] or "")
        elif leaf := LEAF.search(line):
            found[".".join([*path[1:], leaf[1]])] = f"{leaf[3]} [{leaf[2]}]"
        elif batch := BATCH.search(line):
            found[".".join(path[1:])] = f"[{batch[1]}]"
            path.pop()
    assert not path and found
    return found


def printed_storage(text: object) -> dict[str, str]:
    return dict(re.findall(r"^    ([\w.]+): (\w+ \[[\d, ]+\])", str(text), re.MULTILINE))
