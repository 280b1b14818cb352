"""What a worker must have and see before it converts, and who gets workers that do."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from datasets_cli.catalogue.registry import PACKAGE
from datasets_cli.parallel.engine import Workers
from datasets_cli.parallel.expectation import Expectation, refuse_unfit
from datasets_cli.parallel.local import LocalWorkers
from datasets_cli.parallel.tasks import CallingProcess, OwnTasks
from datasets_cli.parallel.workers import source_digest
from datasets_cli.sources.disk import make_folder

KEPT = "What has been downloaded is kept: run the same command again."


@dataclass(frozen=True)
class ConversionNeeds:
    """What every worker of a conversion must have and see."""

    expected: Expectation
    files: tuple[Path, ...]

    def differences(self) -> list[str]:
        """Return how this process differs, one text for each difference."""
        differences = self.expected.differences()
        unseen = [path for path in self.files if not path.is_file()]
        return [*differences, f"it does not see the file {unseen[0]}"] if unseen else differences

    def check(self) -> None:
        """Check this process, the first time."""
        self.expected.check(self.differences)


@contextmanager
def fit_workers(
    workers: Workers, family: str, folder: Path, files: Iterable[Path]
) -> Iterator[tuple[Executor, ConversionNeeds | None]]:
    """Give workers for a conversion, none of whose tasks runs any more at the end."""
    with workers.pool() as pool:
        if isinstance(pool, CallingProcess | LocalWorkers):
            needs = None
        else:
            needs = _needs(family, folder, files)
            refuse_unfit(pool, ConversionNeeds.differences, needs, KEPT)
        try:
            if workers.end_with_the_call:
                yield pool, needs
            else:
                with OwnTasks(pool) as own:
                    yield own, needs
        finally:
            if needs is not None:
                needs.expected.token.unlink(missing_ok=True)


def _needs(family: str, folder: Path, files: Iterable[Path]) -> ConversionNeeds:
    make_folder(folder)
    name = f"{PACKAGE}.{family}"
    digests = {
        module: source_digest(sys.modules[module])
        for module in sorted(sys.modules)
        if module == name or module.startswith(f"{name}.")
    }
    expected = replace(
        Expectation.of_this_process(folder, b"N."),  # the pickle of None: a recipe is not a pickle
        modules={module: digest for module, digest in digests.items() if digest is not None},
    )
    return ConversionNeeds(expected, tuple(path.absolute() for path in files))
