"""Where the draws of a buffer stand, in the files of a dump: the sampler, and the generator.

PATH/sampler/    priorities, or the position in an epoch
PATH/rng_state/  the state of the buffer's own generator, as TorchRL 0.14 writes it
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from tensordict import TensorDict

from datasets_cli.errors import DamagedDataset, RldsError, UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.checkpoint.dump_folder import GENERATOR, SAMPLER
from datasets_cli.replay.checkpoint.read_folder import read_tensordict
from datasets_cli.replay.checkpoint.write_folder import plan_files, write_files
from datasets_cli.replay.samplers.epochs import listed_epoch
from datasets_cli.replay.samplers.prioritized import METADATA as PRIORITIES_META
from datasets_cli.replay.samplers.protocol import Sampler, has_priorities
from datasets_cli.replay.samplers.rows import SamplerWithoutReplacement
from datasets_cli.replay.storages.state_files import (
    SETTINGS_BYTES,
    STATE,
    check_folder,
    read_state,
    write_state,
    wrong,
)
from datasets_cli.replay.writing.writers import Writer
from datasets_cli.schema.columns import META_FILENAME

WRONG_STATE = (
    *(ValueError, TypeError, KeyError, IndexError, AttributeError, ArithmeticError, RuntimeError),
)
"""What a part may raise that is given a state of other types or sizes than its own."""


def try_state(
    part: Sampler | Writer, state: StateDict, what: str, kind: type[RldsError], remedy: str
) -> None:
    """Check that a sampler or writer takes a state; it is not changed."""
    with _trial(part, what, kind, remedy):
        part.load_state_dict(state)


@contextmanager
def _trial(
    part: Sampler | Writer,
    what: str,
    kind: type[RldsError],
    remedy: str,
    known: tuple[type[Exception], ...] = (),
) -> Iterator[None]:
    """Let a state be loaded into a part, without changing it; ``known`` errors are raised."""
    before = part.state_dict()
    try:
        yield
    except known:
        raise
    except WRONG_STATE as error:
        reason = str(error) if isinstance(error, RldsError) else f"{error!r}."
        if isinstance(error, KeyError):
            reason = f"it has no {error}."
        raise kind(
            f"{what} is not the state of a {type(part).__name__}: {reason} {remedy}"
        ) from error
    finally:
        part.load_state_dict(before)


AGAIN = "Dump the buffer again."
CHANGE_LATER = "change its sampler by set_sampler() after loads()."


def check_kind(sampler: Sampler, state: object, what: str, remedy: str) -> None:
    """Check that the state of a sampler is of one that draws in the same way."""
    own = sampler.state_dict().get("kind")
    drawn = state.get("kind") if isinstance(state, Mapping) else None
    if state and drawn != own:
        raise UsageError(
            f"{what} is not the state of a {type(sampler).__name__}: it draws "
            f"{drawn or 'in an unknown way'}, and this buffer's sampler "
            f"{own or 'keeps no kind'}. Make the buffer with a sampler of that kind, or {remedy}"
        )


def continue_from(
    reader: BatchReader,
    put: Callable[[], None] | None,
    drawn: StateDict | None,
    generator: torch.Tensor | None,
) -> None:
    """Put rows into a buffer, and go on drawing where a sampler and a generator stood."""
    reader.drop()
    if put is not None:
        put()
    if drawn is not None:
        reader.sampler.load_state_dict(drawn)
    if generator is not None:
        reader.generator.set_state(generator)


def write_draws(reader: BatchReader, folder: Path, *, dumps_global: bool) -> None:
    """Write where a buffer's draws stand into the folder of a dump."""
    # The reader's: its sampler may have drawn batches ahead, which were not sampled yet.
    state = reader.draw_state()
    if has_priorities(reader.sampler):
        reader.sampler.dumps(folder / SAMPLER)
    else:
        write_state(folder / SAMPLER / STATE, state["sampler"])
    if dumps_global or reader.generator is not torch.default_generator:
        write_generator(folder, reader.generator, state["generator"])


def write_generator(folder: Path, generator: torch.Generator, state: torch.Tensor) -> None:
    """Write the state of a generator, uint8 ``[n]``, into the folder of a dump."""
    files = dict(plan_files(TensorDict({GENERATOR: state})))
    meta = files[META_FILENAME]
    assert isinstance(meta, dict)
    meta["device"] = str(generator.device)
    write_files(folder / GENERATOR, list(files.items()))


def read_generator(path: Path, generator: torch.Generator) -> torch.Tensor | None:
    """Return the state that a folder has for a generator, uint8 ``[n]``."""
    # None where none was kept, or only that of a generator on another kind of device.
    if not os.path.lexists(path):
        return None
    check_folder(path)
    device = read_state(path / META_FILENAME, SETTINGS_BYTES).get("device")
    if device is not None and str(device).partition(":")[0] != generator.device.type:
        return None
    state = read_tensordict(path).get(GENERATOR, None)
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8 or state.ndim != 1:
        raise wrong(path, GENERATOR, "uint8 numbers", state)
    try:
        torch.Generator(generator.device).set_state(state)
    except (RuntimeError, TypeError) as error:
        raise DamagedDataset(
            f"{path} is not the state of a generator: {error}. Dump the buffer again."
        ) from error
    return state


def read_sampler(sampler: Sampler, folder: Path) -> StateDict | None:
    """Return the state of a sampler that was dumped, or None where none was."""
    if os.path.lexists(folder):
        check_folder(folder)
    if has_priorities(sampler):
        with _trial(sampler, str(folder), DamagedDataset, AGAIN, (RldsError, OSError)):
            sampler.loads(folder)
            return sampler.state_dict()
    if os.path.lexists(folder / PRIORITIES_META):
        state: StateDict | None = {"kind": "by priority"}
    elif os.path.lexists(folder / META_FILENAME):
        if isinstance(sampler, SamplerWithoutReplacement) and sampler.has_slices:
            return None  # TorchRL's epoch of slices counts trajectories differently
        state = _read_epoch(folder)
    else:
        state = read_state(folder / STATE) if os.path.lexists(folder / STATE) else None
    if state is None:
        return None
    check_kind(sampler, state, str(folder), CHANGE_LATER)
    try_state(sampler, state, str(folder), DamagedDataset, AGAIN)
    return state


def _read_epoch(folder: Path) -> StateDict | None:
    """Return what is left of an epoch of TorchRL's, or None where it had not begun."""
    epoch = read_tensordict(folder)
    # Where that epoch had ended, the list is already the next one's.
    order, count = epoch.get("_sample_list", None), epoch.get("len_storage", None)
    if not isinstance(order, torch.Tensor):
        return None
    if not isinstance(count, torch.Tensor) or count.numel() != 1 or count.is_floating_point():
        raise wrong(folder, "len_storage", "a whole number", count)
    return listed_epoch(order, int(count))
