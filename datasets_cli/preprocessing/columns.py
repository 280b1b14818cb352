"""The columns of a dataset as users write them: keys and groups of keys, and frames."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from datasets_cli.errors import UnknownKey, UsageError, argument
from datasets_cli.schema.columns import Column, Key, key_in, refuse_missing_reward, show_key
from datasets_cli.store.manifest import Manifest

MOST_CHANNELS = 4


class KnownColumns:
    """The columns of a dataset, and the columns that the transforms of a pipeline add."""

    def __init__(self, manifest: Manifest) -> None:
        self.id = manifest.id
        self.numbers = {column.key: column for column in manifest.columns}
        self.texts = {text.key for text in manifest.texts}
        self.added: list[Key] = []

    @property
    def keys(self) -> list[Key]:
        """The keys of all columns."""
        return [*self.numbers, *sorted(self.texts), *self.added]

    def of(self, text: str, owner: str) -> list[Key]:
        """Return the keys of the column, or of the group of columns, that a text names."""
        named = key_in(self.keys, (text,))
        keys = [key for key in self.keys if key[: len(named)] == named]
        if not keys:
            refuse_missing_reward(named, argument(owner), self.id)
            names = [*map(show_key, self.keys)]
            near = get_close_matches(text, names, n=3, cutoff=0.6)
            hint = f"Did you mean {' or '.join(near)}?" if near else f"It has {', '.join(names)}."
            raise UnknownKey(
                f"{argument(owner)}: {self.id} has no column {text}.",
                argument=owner,
                id=self.id,
                key=text,
                advice=hint,
            )
        return keys

    def of_numbers(self, text: str, owner: str) -> list[Column]:
        """Return the columns of numbers that a text names; a group may have text beside them."""
        columns = [self.numbers[key] for key in self.of(text, owner) if key in self.numbers]
        if not columns:
            raise UsageError(
                f"{argument(owner)}: {text} of {self.id} is text, not numbers.",
                argument=owner,
                id=self.id,
                key=text,
            )
        return columns

    def add(self, keys: Iterable[Key], owner: str) -> None:
        """Add the columns of a transform."""
        for key in keys:
            if key in self.keys:
                raise UsageError(
                    f"{argument(owner)} adds the column {show_key(key)}, which {self.id} already "
                    "has.",
                    argument=owner,
                    id=self.id,
                    key=key,
                    advice="Rename or exclude that one first, in a separate call.",
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
                f"dimensions a row. It has {shown or 'no observation'}.",
                argument=owner,
                id=self.id,
                found=shown,
            )
        return by_channels


def _has_channels_last(column: Column, owner: str) -> bool:
    """Return whether frames are ``[H, W, C]``, rather than ``[H, W]``, ``[C, H, W]`` or a stack."""
    if len(column.shape) == 2 or column.shape[-1] > MOST_CHANNELS:
        return False
    if column.shape[0] <= MOST_CHANNELS:
        raise UsageError(
            f"{argument(owner)}: {show_key(column.key)} is {list(column.shape)}, whose channels "
            "may be first or last.",
            argument=owner,
            key=column.key,
            found=list(column.shape),
            advice="Pass a function instead.",
        )
    return True
