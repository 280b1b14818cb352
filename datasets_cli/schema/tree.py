"""Nested dicts of leaves; a plan makes the dicts of a batch cheap to create."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from datasets_cli.schema.columns import Key

Tree = dict[str, Any]
"""``{name: leaf or Tree}``: the content of a TensorDict as plain dicts."""

Slot = tuple[int, str]
"""The number of a dict of a plan, and the name in it."""


class TreePlan:
    """The place of each key of a fixed set in nested dicts."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._nodes: dict[Key, int] = {(): 0}
        self._links: list[tuple[int, int, str]] = []
        self.slots: dict[Key, Slot] = {}
        """The slot of each key in the dicts of ``new``."""
        for key in keys:
            for depth in range(1, len(key)):
                if key[:depth] not in self._nodes:
                    self._nodes[key[:depth]] = len(self._nodes)
                    parent = self._nodes[key[: depth - 1]]
                    self._links.append((parent, self._nodes[key[:depth]], key[depth - 1]))
            self.slots[key] = self._nodes[key[:-1]], key[-1]

    def new(self) -> list[Tree]:
        """Return the linked, empty dicts; the first is the root."""
        nodes: list[Tree] = [{} for _ in self._nodes]
        for parent, child, name in self._links:
            nodes[parent][name] = nodes[child]
        return nodes


def leaves_in(tree: Tree, above: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield the leaves of a nested dict with their keys."""
    for name, item in tree.items():
        if isinstance(item, dict):
            yield from leaves_in(item, (*above, name))
        else:
            yield (*above, name), item


def entry(tree: Any, key: Key) -> Any:
    """Return the value of a key in a nested dict or a TensorDict, or None."""
    for name in key:
        tree = tree.get(name, None) if tree is not None else None
    return tree


def put(tree: Any, key: Key, value: Any) -> None:
    """Set the value of a key in a nested dict or a TensorDict."""
    if not isinstance(tree, dict):
        tree.set(key, value)
        return
    for name in key[:-1]:
        tree = tree.setdefault(name, {})
    tree[key[-1]] = value


def grow_tree(leaves: Mapping[Key, Any]) -> Tree:
    """Return leaves as a nested dict."""
    plan = TreePlan(leaves)
    nodes = plan.new()
    for key, leaf in leaves.items():
        node, name = plan.slots[key]
        nodes[node][name] = leaf
    return nodes[0]
