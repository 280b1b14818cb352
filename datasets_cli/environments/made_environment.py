"""An environment by a function of the user's: what is sent to a process that is to make it.

The file imports neither torch nor tensordict, so that gymnasium's processes do not have to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from datasets_cli.gymnasium_extra import gymnasium


@dataclass(frozen=True)
class MadeEnvironment:
    """Makes an environment by a user's function."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any]

    def __call__(self) -> gymnasium.Env:
        made = self.function(**self.arguments)
        environment: gymnasium.Env = getattr(made, "gymnasium_env", made)
        return environment
