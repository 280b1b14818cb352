"""TorchRL's keywords that have no effect here: one table, by class.

A class with TorchRL's name accepts all of TorchRL's keywords. A keyword with an effect is an
argument of the class; ``accepts_keywords`` adds the ineffective ones from ``KEYWORDS``, and
``help()`` shows them. An unsupported value is rejected by an error that names the called class.

Classes are decorated where they are defined, because a worker process imports a class from its
module.
"""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from datasets_cli.errors import Unsupported, not_both

Class = TypeVar("Class", bound=type)


@dataclass(frozen=True)
class Keyword:
    """A keyword that is ignored, an alias of another keyword, or a factory of its value."""

    default: Any
    accepted: tuple[Any, ...] = ()
    advice: str = ""
    factory_of: str | None = None
    alias_of: str | None = None

    @property
    def annotation(self) -> str:
        """The type, for ``help()``."""
        if self.factory_of is not None:
            return "Callable[[], Any] | None"
        if self.alias_of is not None:
            return "str | None"
        return f"Literal[{', '.join(map(repr, (self.default, *self.accepted)))}]"

    def apply(self, owner: str, name: str, value: Any, arguments: dict[str, Any]) -> None:
        """Check a value; for an alias or a factory, set the argument that it stands for."""
        accepted = (self.default, *self.accepted)
        found = value.__name__ if isinstance(value, type) else value
        if any(found is one or (type(found) is type(one) and found == one) for one in accepted):
            return
        target = self.alias_of or self.factory_of
        if target is None or (self.factory_of is not None and not callable(value)):
            expected = " or ".join(map(repr, accepted)) if target is None else "a function"
            raise Unsupported(
                f"{owner} does not support {name}={value!r}; expected {expected}.",
                argument=name,
                expected=expected,
                found=value,
                advice=self.advice,
            )
        if arguments.get(target) is not None:
            raise not_both(name, target, value)
        arguments[target] = value if self.alias_of else value()


def accepts_keywords(kind: Class) -> Class:
    """Add the keywords of ``KEYWORDS`` to the arguments of a class."""
    make: Any = vars(kind)["__init__"]
    signature = inspect.signature(make)
    own = [*signature.parameters.values()]
    rest = [own.pop()] if own[-1].kind is inspect.Parameter.VAR_KEYWORD else []
    added = {
        name: keyword
        for name, keyword in KEYWORDS[kind.__name__].items()
        if name not in signature.parameters
    }

    @functools.wraps(make)
    def initialize(self: Any, *positional: Any, **named: Any) -> None:
        for name in added.keys() & named.keys():
            added[name].apply(type(self).__name__, name, named.pop(name), named)
        make(self, *positional, **named)

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=keyword.default,
            annotation=keyword.annotation,
        )
        for name, keyword in added.items()
    ]
    initialize.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*own, *parameters, *rest]
    )
    kind.__init__ = initialize  # type: ignore[misc]
    return kind


Keywords = dict[str, Keyword]


def _same(names: str, *keyword: Any, **fields: Any) -> Keywords:
    """Return the same keyword under several names."""
    return dict.fromkeys(names.split(), Keyword(*keyword, **fields))


_COMPILABLE: Keywords = {"compilable": Keyword(False, (True, None))}  # nothing is compiled
_CHECKPOINTER: Keywords = {
    "checkpointer": Keyword(None, advice="dumps() and loads() write and read one kind of files."),
}

_LOCAL = "A buffer is an object of this process."
_BUFFER: Keywords = {
    "sample_unit": Keyword(None, advice="A SliceSampler draws sequences of rows."),
    "transform_factory": Keyword(None, factory_of="transform", advice="Pass transform= instead."),
    **_CHECKPOINTER,
    "consume_after_n_samples": Keyword(
        None, advice="A SamplerWithoutReplacement draws every row once an epoch."
    ),
    "shared": Keyword(False, advice="Its rows are in the memory of this process."),
    **_COMPILABLE,
    "delayed_init": Keyword(None, (True, False)),  # memory is allocated for the first rows
    "service_backend": Keyword("direct", advice=_LOCAL),
    "service_backend_options": Keyword(None, advice=_LOCAL),
    "transport": Keyword("auto", ("direct",), advice=_LOCAL),
    "transport_options": Keyword(None, advice=_LOCAL),
}
_PRIORITIZED: Keywords = {
    **_BUFFER,
    "sync": Keyword(True, advice="The process that writes rows also draws them."),
}
_ENSEMBLE: Keywords = {
    **_BUFFER,
    **_same("storage sampler writer dim_extend", None, advice="Each member has its own."),
    "pin_memory": Keyword(False, advice="Each member pins its part of a batch."),
    "prefetch": Keyword(None, (0,), advice="Each member makes its parts ahead."),
    **_same("routing_key routing_dim", None, advice="Write rows to a member, ensemble[0]."),
}
_DATASET: Keywords = {
    **_BUFFER,
    "shared": Keyword(False, (True,)),  # every process opens the same files
    "storage": Keyword(None, advice="The dataset is the storage."),
    "dim_extend": Keyword(None, (0,), advice="A dataset has one dimension, and is read-only."),
}

_LAZY: Keywords = {
    **_COMPILABLE,
    "consolidated": Keyword(False, advice="Each entry is a separate tensor."),
    "shared_init": Keyword(False, advice="The rows of a LazyMemmapStorage are in files."),
    "cleanup_memmap": Keyword(True, (False,)),  # the rows are in memory, not in files
}
_MAPPED: Keywords = {**_COMPILABLE, "shared_init": Keyword(False, (True,))}  # files can be shared
_LIST: Keywords = {
    **_COMPILABLE,
    "device": Keyword(
        None, ("cpu", torch.device("cpu")), "Items are not moved: move them to the device first."
    ),
}

_KEYS: Keywords = _same(
    "in_keys out_keys in_keys_inv out_keys_inv",
    None,
    advice="A transform with keys declares them in its own __init__.",
)

_TRAINER_FILES = "Pass save_trainer_file= and save_trainer_interval= to write the state."
_HERE = "The loop learns in this process."
_TRAINER: Keywords = {
    "optimization_stepper": Keyword(
        None, advice='Register a function at the point "optimizer" instead.'
    ),
    "target_net_updater": Keyword(
        None, advice='Register it: trainer.register_op("post_optim", updater.step).'
    ),
    "replay_buffer": Keyword(
        None, advice="Register it: ReplayBufferTrainer(replay_buffer).register(trainer)."
    ),
    "batch_size": Keyword(None, advice="Pass it to ReplayBufferTrainer."),
    "learner_backend": Keyword("local", advice=_HERE),
    "learner_backend_options": Keyword(None, advice=_HERE),
    "learner_poll_interval": Keyword(0.05, advice=_HERE),
    **_same("checkpoint checkpoint_rotation checkpoint_metadata", None, advice=_TRAINER_FILES),
    "async_collection": Keyword(
        False, advice="A MultiAsyncCollector collects while the loop learns."
    ),
    "log_timings": Keyword(False, advice="A profiler, such as torch.profiler, measures them."),
    "auto_log_optim_steps": Keyword(
        True, advice='Register a function at the point "post_optim_log" to log other values.'
    ),
}

_WRAPPER = "Wrap the environment of gymnasium: GymEnv(gymnasium.wrappers...)."
_BATCHED_ENVS = "Use a SerialEnv or a ParallelEnv."
_GYM: Keywords = {
    **_same("from_pixels allow_done_after_reset", False, advice=_WRAPPER),
    "pixels_only": Keyword(True, (False,)),  # has an effect only with from_pixels
    "frame_skip": Keyword(None, (1,), _WRAPPER),
    "missing_obs_value": Keyword(None, advice=_WRAPPER),
    "convert_actions_to_numpy": Keyword(True, advice="Environments of gymnasium take arrays."),
    "batch_size": Keyword(None, (torch.Size([]), (), []), _BATCHED_ENVS),
    **_same("num_envs num_workers", None, (0, 1), _BATCHED_ENVS),
}
_ANY = (True, False)
_BATCHED: Keywords = {
    **_same("pin_memory memmap", False, advice="Environments write into gymnasium's memory."),
    **_same("share_individual_td use_buffers", None, _ANY),
    **_same("shared_memory consolidate", True, _ANY),
    **_same("serial_for_single non_blocking metadata_from_workers daemon", False, _ANY),
    "policy_proof": Keyword(None, advice="Policies are called with the environments' output."),
    "allow_step_when_done": Keyword(False, advice="A trajectory begins before the next step."),
    "num_threads": Keyword(None, (1,), "A process has one thread."),
    "num_sub_threads": Keyword(1, advice="A process has one thread."),
    "mp_start_method": Keyword(None, ("spawn",), "Processes are spawned."),
    "shutdown_timeout": Keyword(10.0, (10,), "close() waits for the processes."),
}

_COLLECTOR: Keywords = {
    "return_same_td": Keyword(False, advice="Every batch has its own memory."),
    "extend_buffer": Keyword(True, advice="A replay buffer is extended by whole batches."),
    "trust_policy": Keyword(None, _ANY),  # policies are never wrapped
    "use_buffers": Keyword(None, _ANY),  # rows are always written into arrays of a batch
    "no_cuda_sync": Keyword(False, (True,)),  # rows are copied before they are returned
    "track_traj_ids": Keyword(True, advice="exclude(('collector', 'traj_ids')) removes them."),
    "reset_when_done": Keyword(True, advice="A trajectory begins where one has ended."),
    "compile_policy": Keyword(None, (False,), "Pass torch.compile(policy)."),
    "cudagraph_policy": Keyword(None, (False,), "Pass tensordict.nn.CudaGraphModule(policy)."),
    "policy_factory": Keyword(None, factory_of="policy", advice="Pass policy= instead."),
    "auto_register_policy_transforms": Keyword(
        None, (False,), "Append the policy's transforms to the environment."
    ),
    "compact_obs": Keyword(
        False, advice="The layout 'compact' of a dataset stores each step once."
    ),
    **_same(
        "weight_updater weight_sync_schemes weight_recv_schemes",
        None,
        advice="update_policy_weights_() sends weights to every process.",
    ),
    "track_policy_version": Keyword(False, advice="Write a version by the policy, at the root."),
    "worker_idx": Keyword(None, advice="Processes are numbered by their place in create_env_fn."),
    **_same(
        "trajs_per_batch trajs_per_write traj_format",
        None,
        advice="Pass split_trajs=True for padded trajectories.",
    ),
}
_SEVERAL_COLLECT = "MultiSyncCollector and MultiAsyncCollector collect in several processes."
_ONE_PROCESS: Keywords = {
    **_COLLECTOR,
    "interruptor": Keyword(None, advice="Every batch is whole."),
    "backend": Keyword(None, ("direct",), _SEVERAL_COLLECT),
    **_same("backend_options num_collectors sync", None, advice=_SEVERAL_COLLECT),
}
_EACH = "A process has one thread, and collects as Collector does."
_PROCESSES: Keywords = {
    **_COLLECTOR,
    "collector_class": Keyword(None, advice=_EACH),
    "num_threads": Keyword(None, (1,), _EACH),
    "num_sub_threads": Keyword(1, advice=_EACH),
    "preemptive_threshold": Keyword(None, advice="MultiAsyncCollector waits for no process."),
    "init_fn": Keyword(None, advice="create_env_fn is called in each process: put it there."),
}
_ASYNC_PROCESSES: Keywords = {
    **_PROCESSES,
    "cat_results": Keyword(None, ("stack",), "A batch comes from one process."),
}
_ENGINE = "engine= and address= choose where processes run, and how batches and weights are sent."
_DISTRIBUTED: Keywords = {
    **_PROCESSES,
    "collector_class": Keyword(None, ("single", "Collector"), "Each process is a Collector."),
    "num_workers_per_collector": Keyword(1, advice="Pass ParallelEnv(2, make_env) as environment."),
    "num_collectors": Keyword(None, alias_of="num_workers"),
    "update_after_each_batch": Keyword(False, alias_of="update_at_each_batch"),
    "max_weight_update_interval": Keyword(-1, (None,), "Use update_interval=1."),
    "backend": Keyword("gloo", advice=_ENGINE),
    "launcher": Keyword("submitit", ("mp",), _ENGINE),
    **_same("slurm_kwargs tcp_port visible_devices tensorpipe_options", None, advice=_ENGINE),
    "use_env_creator": Keyword(False, (True,)),  # functions are always sent by value
    "no_cuda_sync": Keyword(None, _ANY),  # rows are copied before they are returned
}

_ONE_VALUE = "A batch of the example is one value, not a stack of values."
KEYWORDS: dict[str, Keywords] = {
    **dict.fromkeys(("ReplayBuffer", "TensorDictReplayBuffer", "HERReplayBuffer"), _BUFFER),
    "PrioritizedReplayBuffer": _PRIORITIZED,
    "TensorDictPrioritizedReplayBuffer": _PRIORITIZED,
    "ReplayBufferEnsemble": _ENSEMBLE,
    "D4RLExperienceReplay": {**_DATASET, "name": Keyword(None, alias_of="dataset_id")},
    "MinariExperienceReplay": _DATASET,
    "AtariDQNExperienceReplay": _DATASET,
    "OpenMLExperienceReplay": _DATASET,
    "Storage": {**_COMPILABLE, **_CHECKPOINTER},
    "TensorStorage": _COMPILABLE,
    "LazyTensorStorage": _LAZY,
    "LazyMemmapStorage": _MAPPED,
    **dict.fromkeys(("ListStorage", "LazyStackStorage", "CompressedListStorage"), _LIST),
    "Writer": _COMPILABLE,
    "RoundRobinWriter": _COMPILABLE,
    "TensorDictRoundRobinWriter": _COMPILABLE,
    "TensorDictMaxValueWriter": _COMPILABLE,
    "ImmutableDatasetWriter": _COMPILABLE,
    "Transform": _KEYS,
    "Compose": _KEYS,
    "RewardSum": {"reward_spec": Keyword(False, advice="It has no specs.")},
    "Trajectory": _same("batch_size device names", None, advice="Pass them to data."),
    "Trainer": _TRAINER,
    "GymEnv": _GYM,
    "SerialEnv": _BATCHED,
    "ParallelEnv": _BATCHED,
    "Collector": _ONE_PROCESS,
    "MultiSyncCollector": _PROCESSES,
    "MultiAsyncCollector": _ASYNC_PROCESSES,
    "DistributedCollector": _DISTRIBUTED,
    "DistributedSyncCollector": _DISTRIBUTED,
    "RayCollector": _DISTRIBUTED,
    "NonTensor": {
        "batched": Keyword(None, (False,), _ONE_VALUE),
        "feature_dims": Keyword(None, advice=_ONE_VALUE),
    },
    "MultiCategorical": {
        "remove_singleton": Keyword(True, (False,))
    },  # one item keeps its dimension
    "Composite": {
        "batch_size": Keyword(None, alias_of="shape"),
        "data_cls": Keyword(None, advice="Values are TensorDicts."),
        "step_mdp_static": Keyword(False, advice="step_mdp chooses the entries on each call."),
    },
}
"""The keywords of each class; an argument of the class itself wins over the table."""
