"""Which formats of batches there are."""

from __future__ import annotations

from importlib.util import find_spec

from datasets_cli.errors import UsageError, argument
from datasets_cli.replay.rows.batch_format import BatchFormat
from datasets_cli.replay.rows.jax_format import JaxFormat
from datasets_cli.replay.rows.numpy_format import NumpyFormat

NAMES = ("torch", "numpy", "jax")
DTYPES = "transform=DTypeCastTransform(torch.float32, torch.float16) gives other element types."
"""What ``cast`` is mistaken for."""


def choose_format(name: str, *, cast: bool = False) -> BatchFormat | None:
    """Return the format that users call by a name; None for torch's."""
    if name not in NAMES:
        raise UsageError(f"format is one of {', '.join(map(repr, NAMES))}, not {name!r}.")
    if cast not in (False, True):
        raise UsageError(f"{argument('cast')} must be True or False, not {cast!r}. {DTYPES}")
    if cast and name != "jax":
        raise UsageError(
            f"cast=True is for format 'jax', which may have 32 bits only; {name!r} gives every "
            f"number as it is stored. {DTYPES}"
        )
    if name == "numpy":
        return NumpyFormat()
    if name == "jax":
        if find_spec("jax") is None:
            raise UsageError("format 'jax' needs jax: pip install 'rlds-cli[jax]'")
        return JaxFormat(cast)
    return None
