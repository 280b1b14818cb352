"""The names of datasets_cli.environments, for type checkers and editors."""

from datasets_cli.environments.collectors.collectors import Collector as Collector
from datasets_cli.environments.collectors.collectors import (
    DistributedCollector as DistributedCollector,
)
from datasets_cli.environments.collectors.collectors import (
    DistributedSyncCollector as DistributedSyncCollector,
)
from datasets_cli.environments.collectors.collectors import (
    MultiAsyncCollector as MultiAsyncCollector,
)
from datasets_cli.environments.collectors.collectors import MultiSyncCollector as MultiSyncCollector
from datasets_cli.environments.collectors.collectors import RayCollector as RayCollector
from datasets_cli.environments.gym_env import GymEnv as GymEnv
from datasets_cli.environments.gym_env import ParallelEnv as ParallelEnv
from datasets_cli.environments.gym_env import SerialEnv as SerialEnv
from datasets_cli.environments.policies import RandomPolicy as RandomPolicy

_LAZY_IMPORTS: dict[str, str]
