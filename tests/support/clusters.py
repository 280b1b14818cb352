"""Clusters of real processes on this machine: Dask's scheduler and workers, and Ray's."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distributed import Client
from distributed.versions import VersionMismatchWarning


class DaskCluster:
    """A scheduler and workers of Dask, each a process of one thread.

    Each worker runs the code of ``preload`` first; ``RLDS_TEST_WORKER`` numbers them.
    """

    def __init__(self, folder: Path, num_workers: int = 2, preload: str = "") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._folder, self._num_workers = folder, num_workers
        self._preload = folder / "preload.py"
        self._preload.write_text(preload)
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> DaskCluster:
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        port = self.address.rpartition(":")[2]
        self._run("dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-show")
        for number in range(self._num_workers):
            options = ["--nthreads", "1", "--no-nanny", "--preload", str(self._preload)]
            self._run("dask_worker", self.address, *options, number=number)
        with warnings.catch_warnings():
            # Of a worker that has not said what it has.
            warnings.simplefilter("ignore", VersionMismatchWarning)
            with Client(self.address, timeout=60, set_as_default=False) as client:
                client.wait_for_workers(self._num_workers, timeout=60)

    def kill(self) -> None:
        while self._processes:
            process = self._processes.pop(0)
            process.kill()
            process.wait()

    def _run(self, module: str, *arguments: str, number: int | None = None) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{module}", *arguments, "--no-dashboard"]
        environment = os.environ | {"RLDS_TEST_WORKER": str(number)}
        with (self._folder / "log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(command, cwd=self._folder, env=environment, stdout=log, stderr=log)
            )


@contextmanager
def ray_cluster(num_workers: int = 2) -> Iterator[None]:
    """Connect this process to a cluster of Ray that ends with it."""
    import ray

    ray.init(
        num_cpus=num_workers,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _node_ip_address="127.0.0.1",
    )
    try:
        yield
    finally:
        ray.shutdown()
