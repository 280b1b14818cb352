"""What a derived dataset was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class Origin:
    """Everything that decides the values of a derived dataset."""

    parent: Mapping[str, Any]
    function: Mapping[str, Any]
    arguments: Mapping[str, Any]
    seed: int

    def differences(self, manifest: Manifest) -> list[str]:
        """Return how what a dataset was made of differs from this, one text for each difference."""
        parent = manifest.parent or {}
        found = []
        if parent.get("content") != self.parent["content"]:
            found.append(f"the data of {parent.get('id')}, now other data of {self.parent['id']}")
        if manifest.function.get("digest") != self.function["digest"]:
            old, new = manifest.function.get("name"), self.function["name"]
            edited = " after an edit of it or its file" if old == new else ""
            found.append(f"the function {old}, now {new}{edited}")
        for name in sorted({*self.arguments, *manifest.arguments}):
            was, now = manifest.arguments.get(name), self.arguments.get(name)
            if was != now and name == "view":
                views = (known.get("view", "all") for known in (parent, self.parent))
                found.append("the rows {}, now {}".format(*views))
            elif was != now:
                found.append(f"the argument {name}={was}, now {now}")
        if manifest.seed != self.seed:
            found.append(f"the seed {manifest.seed}, now {self.seed}")
        return found
