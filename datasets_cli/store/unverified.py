"""The warning of an opened dataset whose raw files are not known to be the publisher's."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

from datasets_cli.errors import UnverifiedDataset
from datasets_cli.store.manifest import Manifest

PACKAGE = __name__.partition(".")[0]


def warn_if_unverified(manifest: Manifest) -> None:
    """Warn that a dataset is unverified, at the line outside this package that opened it."""
    # Python's filters decide what becomes of it. Its memory of what was shown before, which would
    # hide the second opening at one line, is not used.
    if manifest.state != "unverified":
        return
    caller = sys._getframe()
    while _is_ours(caller) and caller.f_back is not None:
        caller = caller.f_back
    warnings.warn_explicit(
        f"{manifest.id} is unverified: {_reason(manifest)} To open it without this warning: "
        'warnings.simplefilter("ignore", datasets_cli.UnverifiedDataset).',
        UnverifiedDataset,
        filename=caller.f_code.co_filename,
        lineno=caller.f_lineno,
        module=caller.f_globals.get("__name__", "__main__"),
        registry={},
    )


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == PACKAGE


def _reason(manifest: Manifest) -> str:
    """Return why it is unverified, and what to do."""
    if manifest.parent is None:
        return (
            f"its raw files are not known to be the publisher's ({manifest.unverified[0]}). "
            f"For the published ones: rlds download --force {manifest.id}."
        )
    parent = manifest.parent["id"]
    return (
        f"it is derived from {parent}, whose raw files are not known to be the publisher's. "
        f"Install those (rlds download --force {parent}) and derive it again."
    )
