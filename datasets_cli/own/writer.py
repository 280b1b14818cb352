"""Writing a dataset of one's own episode by episode."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from datasets_cli.errors import SourceError, UsageError, argument
from datasets_cli.install.installed import condition_of
from datasets_cli.install.options import InstalledDataset
from datasets_cli.options import takes_fields
from datasets_cli.own.columns import episode_steps
from datasets_cli.own.dataset import OwnOptions, making, own_id, save_steps
from datasets_cli.own.journal import Journal
from datasets_cli.own.steps import FiniteCheck
from datasets_cli.schema.steps import StepCheck
from datasets_cli.store.cache_root import CacheRoot, has_manifest


@dataclass(frozen=True)
class WriterCall(OwnOptions):
    """What ``DatasetWriter`` takes.

    Args:
        id: ``family/name``; the family is any word that no published family has.
    """

    id: str


class DatasetWriter:
    """Writes a dataset of one's own, an episode at a time, in a ``with`` statement.

        with DatasetWriter("mine/robot") as writer:
            for number in range(writer.num_episodes, 100):
                writer.add_episode({"observation": ..., "action": ..., "reward": ...})
        writer.dataset.path

    Each episode is on the disk when ``add_episode`` returns: a killed program goes on where it was,
    at ``num_episodes``, with the result of one that was not killed. The dataset is there when the
    statement ends without an error.

    Raises:
        UsageError: the id is of a published family, or is installed and ``force`` is not given.
        LockedError: another process writes this dataset.
    """

    @takes_fields(WriterCall)
    def __init__(self, options: WriterCall) -> None:
        self._options, self._id = options, own_id(options.id)
        self._root = CacheRoot(options.chosen_config().root)
        self._held = ExitStack()
        self._journal: Journal | None = None
        self.dataset: InstalledDataset | None = None

    def __enter__(self) -> Self:
        with ExitStack() as held:
            self._progress = held.enter_context(making(self._id, self._options))
            journal = Journal(self._root.downloads(self._id))
            held.callback(journal.close)
            self._refuse_installed(journal)
            self._journal, self._held = journal, held.pop_all()
        if journal.num_episodes:
            self._progress.note(
                f"{self._id}: {journal.num_episodes:,} episodes of a writer that was stopped are "
                "kept; discard() drops them"
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._held:
            journal, self._journal = self._opened, None
            if kind is not None:
                return
            if not journal.num_episodes:
                raise UsageError(f"{self._id} has no episode: add_episode() was not called.")
            given = self._id, journal.blocks(), self._options, self._progress
            source = {"filename": "steps", "validator": journal.fingerprint}
            self.dataset = save_steps(*given, lambda: source)
            journal.remove()

    @property
    def num_episodes(self) -> int:
        """Episodes that were added so far, also before a kill."""
        return self._opened.num_episodes

    @property
    def num_steps(self) -> int:
        """Steps of these episodes."""
        return self._opened.num_steps

    def add_episode(self, columns: Mapping[Any, Any]) -> int:
        """Add the steps of one whole episode, which is on the disk then.

        Args:
            columns: arrays ``[T, ...]`` by name, as ``create_dataset`` takes them; ``observation``
                may have T + 1 rows, the last one after the last action; ``terminated`` and
                ``truncated`` may be one flag, of the last step; or a TensorDict that ``episode()``
                of a dataset returns.

        Returns:
            The number of episodes so far.

        Raises:
            UsageError: its columns are not those of the episodes before it or differ in length,
                observation or action is missing, flags are not 0 and 1, or with ``strict`` an
                action or a reward is not finite.
        """
        journal = self._opened
        name = f"Episode {journal.num_episodes}"
        steps = episode_steps(columns, name)
        if self._options.strict:
            FiniteCheck(strict=True, what=f"{name}: ").take(steps)
        try:
            StepCheck(f"{self._id}: {name}", needs_rewards=False).checked(steps)
            journal.add(steps)
        except SourceError as error:
            raise UsageError(str(error)) from error  # no bytes are damaged
        return journal.num_episodes

    def discard(self) -> None:
        """Drop the episodes that were added so far."""
        self._opened.remove()

    def _refuse_installed(self, journal: Journal) -> None:
        """Drop episodes that are installed, and refuse to replace them unasked."""
        if not has_manifest(folder := self._root.dataset(self._id)):
            return
        manifest = condition_of(folder, self._id).manifest  # None where it is damaged
        known = [source.get("validator") for source in manifest.resources] if manifest else []
        if journal.num_episodes and journal.fingerprint in known:
            journal.remove()  # it was killed after the commit
        if not self._options.force:
            raise UsageError(
                f"{self._id} is installed. Replace it with {argument('force', 'True')}, or choose "
                "another name."
            )

    @property
    def _opened(self) -> Journal:
        if self._journal is None:
            raise UsageError("DatasetWriter is used in a with statement: with DatasetWriter(...)")
        return self._journal
