"""Keywords of TorchRL's collectors that change nothing, for ``takes``."""

from __future__ import annotations

from datasets_cli.replay.torchrl_words import Word

_WEIGHTS = "update_policy_weights_() gives weights to every process."
_TRAJECTORIES = "split_trajs=True gives trajectories, padded."
COLLECTOR: dict[str, Word] = {
    "return_same_td": Word(False, instead="Every batch has its own memory."),
    "extend_buffer": Word(True, instead="A replay buffer is extended by whole batches."),
    "trust_policy": Word(None, (True, False)),  # no policy is wrapped by guess, none distrusted
    "use_buffers": Word(None, (True, False)),  # rows are always written into arrays of a batch
    "no_cuda_sync": Word(False, (True,)),  # rows are copied before they are given
    "track_traj_ids": Word(True, instead="exclude(('collector', 'traj_ids')) takes them away."),
    "reset_when_done": Word(True, instead="A trajectory begins where one has ended."),
    "compile_policy": Word(None, (False,), instead="Pass torch.compile(policy)."),
    "cudagraph_policy": Word(None, (False,), instead="Pass tensordict.nn.CudaGraphModule(policy)."),
    "policy_factory": Word(None, maker_of="policy", instead="Pass policy= instead."),
    "auto_register_policy_transforms": Word(
        None, (False,), instead="Append what the policy needs to the environment."
    ),
    "compact_obs": Word(False, instead="A dataset of the layout 'compact' has each step once."),
    **dict.fromkeys(
        ("weight_updater", "weight_sync_schemes", "weight_recv_schemes"),
        Word(None, instead=_WEIGHTS),
    ),
    "track_policy_version": Word(False, instead="Write a version by the policy, at the root."),
    "worker_idx": Word(None, instead="Processes are numbered by their place in create_env_fn."),
    **dict.fromkeys(
        ("trajs_per_batch", "trajs_per_write", "traj_format"), Word(None, instead=_TRAJECTORIES)
    ),
}
"""Those of every collector."""

_SEVERAL = "MultiSyncCollector and MultiAsyncCollector collect in several processes."
ONE: dict[str, Word] = {
    **COLLECTOR,
    "interruptor": Word(None, instead="Every batch is whole."),
    "backend": Word(None, ("direct",), instead=_SEVERAL),
    **dict.fromkeys(("backend_options", "num_collectors", "sync"), Word(None, instead=_SEVERAL)),
}
"""Those of a collector in this process."""

_EACH = "A process has one thread, and collects as Collector does."
SEVERAL: dict[str, Word] = {
    **COLLECTOR,
    "collector_class": Word(None, instead=_EACH),
    "num_threads": Word(None, (1,), instead=_EACH),
    "num_sub_threads": Word(1, instead=_EACH),
    "preemptive_threshold": Word(None, instead="MultiAsyncCollector waits for no process."),
    "init_fn": Word(None, instead="Let create_env_fn do it, which is called in each process."),
}
"""Those of collectors in several processes."""

ASYNC: dict[str, Word] = {
    **SEVERAL,
    "cat_results": Word(None, ("stack",), instead="A batch is of one process."),
}
"""Those of a collector whose processes do not wait."""
