"""Keywords of TorchRL's that say what is so anyway, and what is said of one that asks for more.

A class that has TorchRL's name takes all of TorchRL's keywords. Those that change something are
its own arguments; ``takes`` adds the others, so that ``help()`` shows them and a value that
cannot be honoured is refused by the name of the class that was called.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from datasets_cli.errors import UsageError

Class = TypeVar("Class", bound=type)


@dataclass(frozen=True)
class Word:
    """A keyword that changes nothing, or that ``means`` one of another name."""

    default: Any
    taken: tuple[Any, ...] = ()
    instead: str = ""
    maker_of: str | None = None
    means: str | None = None

    @property
    def annotation(self) -> str:
        """Its type, for ``help()``."""
        if self.maker_of is not None:
            return "Callable[[], Any] | None"
        if self.means is not None:
            return "str | None"
        return f"Literal[{', '.join(map(repr, (self.default, *self.taken)))}]"

    def translate(self, owner: str, name: str, value: Any, arguments: dict[str, Any]) -> None:
        """Take a value; what it makes becomes one of the arguments."""
        known = (self.default, *self.taken)
        if any(value is one or (type(value) is type(one) and value == one) for one in known):
            return
        if self.means is not None:
            if self.means in arguments:
                raise UsageError(f"{owner} takes {self.means} or {name}, not both.")
            arguments[self.means] = value
            return
        if self.maker_of is None or not callable(value):
            expected = " or ".join(map(repr, known)) if self.maker_of is None else "a function"
            raise UsageError(
                f"{owner} cannot do what {name}={value!r} asks for; expected {expected}. "
                f"{self.instead}"
            )
        if arguments.get(self.maker_of) is not None:
            raise UsageError(f"{owner} takes {self.maker_of} or {name}, not both.")
        arguments[self.maker_of] = value()


def takes(**words: Word) -> Callable[[Class], Class]:
    """Return a decorator of a class that lets it take some more keywords, and changes nothing
    else.
    """

    def decorate(kind: Class) -> Class:
        make: Any = vars(kind)["__init__"]
        signature = inspect.signature(make)
        own = [*signature.parameters.values()]
        rest = [own.pop()] if own[-1].kind is inspect.Parameter.VAR_KEYWORD else []
        added = {name: word for name, word in words.items() if name not in signature.parameters}

        @functools.wraps(make)
        def initialize(self: Any, *positional: Any, **named: Any) -> None:
            for name in added.keys() & named.keys():
                added[name].translate(type(self).__name__, name, named.pop(name), named)
            make(self, *positional, **named)

        parameters = [
            *own,
            *(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=word.default,
                    annotation=word.annotation,
                )
                for name, word in added.items()
            ),
            *rest,
        ]
        initialize.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        kind.__init__ = initialize  # type: ignore[misc]
        return kind

    return decorate


START_METHODS = ("fork", "spawn", "forkserver")


def check_start_method(method: str) -> None:
    """Check that TorchRL knows a way to start processes; warn where it is not the one here."""
    if method not in START_METHODS:
        raise UsageError(
            f"mp_start_method is {', '.join(map(repr, START_METHODS))} or None, not {method!r}."
        )
    if method != "spawn":
        warnings.warn(
            f"mp_start_method={method!r} does nothing here: processes are spawned, because one "
            "that is forked after torch began threads may hang. Leave it out.",
            stacklevel=5,  # the caller of preprocess, or of AtariDQNExperienceReplay
        )


COMPILABLE = Word(False, (True, None))  # nothing is compiled, so that nothing forbids it


def _refuse_checkpointer(storage: object, checkpointer: object) -> None:
    if checkpointer is not None:
        raise UsageError(
            f"{type(storage).__name__} takes no checkpointer, not {checkpointer!r}: dumps() and "
            "loads() of its buffer write and read one kind of files. Leave it out."
        )


CHECKPOINTER: Any = property(lambda storage: None, _refuse_checkpointer)
"""An attribute of TorchRL's storages, which says what is so anyway."""

LOCAL = "A buffer is an object of this process."
BUFFER: dict[str, Word] = {
    "sample_unit": Word(None, instead="A SliceSampler draws sequences of rows."),
    "transform_factory": Word(None, maker_of="transform", instead="Pass transform= instead."),
    "checkpointer": Word(None, instead="dumps() and loads() write and read one kind of files."),
    "consume_after_n_samples": Word(
        None, instead="A SamplerWithoutReplacement draws every row once an epoch."
    ),
    "shared": Word(False, instead="Its rows are in the memory of this process."),
    "compilable": COMPILABLE,
    "delayed_init": Word(None, (True, False)),  # parts that cost something begin with the rows
    "service_backend": Word("direct", instead=LOCAL),
    "service_backend_options": Word(None, instead=LOCAL),
    "transport": Word("auto", ("direct",), instead=LOCAL),
    "transport_options": Word(None, instead=LOCAL),
}
"""Those of replay buffers."""

ENSEMBLE: dict[str, Word] = {
    **BUFFER,
    **dict.fromkeys(
        ("storage", "sampler", "writer", "dim_extend"), Word(None, instead="Its members have one.")
    ),
    "pin_memory": Word(False, instead="Its members pin their parts."),
    "prefetch": Word(None, (0,), instead="Its members make their parts ahead."),
    **dict.fromkeys(
        ("routing_key", "routing_dim"), Word(None, instead="Write rows to a member, ensemble[0].")
    ),
}
"""Those of ensembles."""

DATASET: dict[str, Word] = {
    **BUFFER,
    "shared": Word(False, (True,)),  # every process opens the same files
    "storage": Word(None, instead="The rows are those of the dataset."),
    "dim_extend": Word(None, (0,), instead="A dataset has one dimension, and no row is added."),
}
"""Those of datasets as replay buffers."""

STORAGE: dict[str, Word] = {"compilable": COMPILABLE}
"""Those of all storages."""

LAZY: dict[str, Word] = {
    **STORAGE,
    "consolidated": Word(False, instead="Each entry is a separate tensor."),
    "shared_init": Word(False, instead="The rows of a LazyMemmapStorage are in files."),
    "cleanup_memmap": Word(True, (False,)),  # there are no files
}
MAPPED: dict[str, Word] = {**STORAGE, "shared_init": Word(False, (True,))}  # files can be shared
LIST: dict[str, Word] = {
    **STORAGE,
    "device": Word(
        None, ("cpu", torch.device("cpu")), instead="Items are not moved; move them first."
    ),
}
"""Those of each kind that are more."""

PROTOCOL: dict[str, Word] = {"compilable": COMPILABLE}
"""Those of writers, and of the classes that users' own parts derive from."""

STORAGE_PROTOCOL: dict[str, Word] = {
    **PROTOCOL,
    "checkpointer": BUFFER["checkpointer"],
}
KEYS: dict[str, Word] = dict.fromkeys(
    ("in_keys", "out_keys", "in_keys_inv", "out_keys_inv"),
    Word(None, instead="A transform that has keys takes them in an __init__ written for it."),
)
"""Those of transforms that have no keys."""

TRAJECTORY: dict[str, Word] = {
    name: Word(None, instead="They are those of data.")
    for name in ("batch_size", "device", "names")
}
"""Those of a tensorclass."""

FILES_OF_TRAINER = "save_trainer_file= and save_trainer_interval= write the state."
HERE = "The loop learns in this process."
TRAINER: dict[str, Word] = {
    "optimization_stepper": Word(
        None, instead='Register a function at the point "optimizer" instead.'
    ),
    "target_net_updater": Word(
        None, instead='Register it: trainer.register_op("post_optim", updater.step).'
    ),
    "replay_buffer": Word(
        None, instead="Register it: ReplayBufferTrainer(replay_buffer).register(trainer)."
    ),
    "batch_size": Word(None, instead="Give it to ReplayBufferTrainer."),
    "learner_backend": Word("local", instead=HERE),
    "learner_backend_options": Word(None, instead=HERE),
    "learner_poll_interval": Word(0.05, instead=HERE),
    **dict.fromkeys(
        ("checkpoint", "checkpoint_rotation", "checkpoint_metadata"),
        Word(None, instead=FILES_OF_TRAINER),
    ),
    "async_collection": Word(
        False, instead="A MultiAsyncCollector collects while the loop learns."
    ),
    "log_timings": Word(False, instead="A profiler, such as torch.profiler, tells them."),
    "auto_log_optim_steps": Word(
        True, instead='Register a function at the point "post_optim_log" to log something else.'
    ),
}
"""Those of the training loop."""
