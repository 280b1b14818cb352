"""What a worker must have and see before it maps the rows of a dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.errors import RldsError
from datasets_cli.parallel.expectation import Expectation, this_worker, unfit, unfit_error
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import read_manifest

_fit: set[str] = set()  # the secrets of the runs that this process may work for


@dataclass(frozen=True)
class WorkerNeeds:
    """What every worker of a run must have and see."""

    expected: Expectation
    source: Path
    content: str

    @classmethod
    def of_this_process(cls, work: Path, function: bytes, dataset: Dataset) -> WorkerNeeds:
        """Return what this process has, which needs no check itself."""
        expected = Expectation.of_this_process(work, function)
        _fit.add(expected.secret)
        return cls(expected, dataset.folder, dataset.manifest.content)

    def differences(self) -> list[str]:
        """Return how this process differs, one text for each difference."""
        found = self.expected.differences()
        try:
            content = read_manifest(self.source).content
        except (OSError, RldsError) as error:
            return [*found, f"it cannot read the dataset {self.source} ({error})"]
        if content != self.content:
            found.append(f"{self.source} has other data there")
        return found

    def open(self) -> Dataset:
        """Return the dataset, with its text; the first time in a process, that one is checked."""
        if self.expected.secret not in _fit:
            if found := self.differences():
                raise unfit_error(unfit(this_worker(), found), "")
            _fit.add(self.expected.secret)
        dataset = open_dataset(self.source, text=True)
        if dataset.manifest.content != self.content:
            raise RldsError(
                f"{self.source} has other data than when the run began. Run the same call again: "
                "it begins from the new data."
            )
        return dataset
