"""The columns of a dataset as users write them: keys and groups of keys, and frames."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from datasets_cli.errors import UsageError, argument
from datasets_cli.schema.columns import Column, Key, key_in, refuse_missing_reward, show_key
from datasets_cli.store.manifest import Manifest

MOST_CHANNELS = 4


class KnownColumns:
    """The columns of a dataset, and those that transforms of a pipeline add."""

    def __init__(self, manifest: Manifest) -> None:
        self.id = manifest.id
        self.numbers = {column.key: column for column in manifest.columns}
        self.texts = {text.key for text in manifest.texts}
        self.added: list[Key] = []

    @property
    def keys(self) -> list[Key]:
        """All of them, and those that transforms add."""
        return [*self.numbers, *sorted(self.texts), *self.added]

    def of(self, text: str, owner: str) -> list[Key]:
        """Return the column that a text names, or those of the group that it names."""
        named = key_in(self.keys, (text,))
        keys = [key for key in self.keys if key[: len(named)] == named]
        if not keys:
            refuse_missing_reward(named, argument(owner), self.id)
            names = [*map(show_key, self.keys)]
            near = get_close_matches(text, names, n=3, cutoff=0.6)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"It has {', '.join(names)}."
            raise UsageError(f"{argument(owner)}: {self.id} has no column {text}. {hint}")
        return keys

    def of_numbers(self, text: str, owner: str) -> list[Column]:
        """Return those of the same that are numbers; a group may have text beside them."""
        columns = [self.numbers[key] for key in self.of(text, owner) if key in self.numbers]
        if not columns:
            raise UsageError(f"{argument(owner)}: {text} of {self.id} is text, not numbers.")
        return columns

    def add(self, keys: Iterable[Key], owner: str) -> None:
        """Take in columns that a transform adds."""
        for key in keys:
            if key in self.keys:
                raise UsageError(
                    f"{argument(owner)} adds the column {show_key(key)}, which {self.id} has "
                    "already. Rename or exclude that one first, by a call of its own."
                )
            self.added.append(key)

    def frames(self, owner: str) -> dict[bool, list[Key]]:
        """Return the columns of frames, by whether their channels are last."""
        by_channels: dict[bool, list[Key]] = {}
        for column in self.numbers.values():
            if column.dtype == "uint8" and len(column.shape) in (2, 3):
                by_channels.setdefault(_has_channels_last(column, owner), []).append(column.key)
        if not by_channels:
            shown = ", ".join(
                f"{show_key(column.key)} {column.dtype} {list(column.shape)}"
                for column in self.numbers.values()
                if len(column.shape) > 1 or column.key[-1] == "observation"
            )
            raise UsageError(
                f"{argument(owner)}: {self.id} has no frames, columns of uint8 with two or three "
                f"dimensions a row. It has {shown or 'no observation'}."
            )
        return by_channels


def _has_channels_last(column: Column, owner: str) -> bool:
    """Return whether frames are ``[H, W, C]``, rather than ``[H, W]``, ``[C, H, W]`` or a stack."""
    if len(column.shape) == 2 or column.shape[-1] > MOST_CHANNELS:
        return False
    if column.shape[0] <= MOST_CHANNELS:
        raise UsageError(
            f"{argument(owner)}: {show_key(column.key)} is {list(column.shape)}, whose channels "
            "may be first or last. Give a function in its place."
        )
    return True
