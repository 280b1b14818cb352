"""Normalised scores: a random policy has 0, an expert 100."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from datasets_cli.catalogue.names import KNOWN_IDS
from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import UsageError, argument, wrong_value
from datasets_cli.verbs.info import DatasetInfo, dataset_info


@dataclass(frozen=True)
class NormalisedScores(JsonForm):
    """Returns, normalised by the reference scores of a dataset.

    Args:
        id: the full id.
        random: the reference return of a random policy, whose score is 0.
        expert: the reference return of an expert, whose score is 100.
        source: the source of both references.
        returns: the returns to normalise.
        scores: the score of each, 100 * (return - random) / (expert - random).
    """

    id: str
    random: float
    expert: float
    source: str
    returns: tuple[float, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class ScoreCall(RootOptions):
    """The arguments of ``normalised_scores``.

    Args:
        id: ``family/name``; a unique name does not need the family.
        returns: undiscounted sums of the rewards of episodes, or a mean of them.
    """

    id: str = field(metadata={**KNOWN_IDS, "help": "Id of a dataset."})
    returns: Iterable[float] = field(
        metadata={
            "argument": True,
            "metavar": "RETURN",
            "help": "Undiscounted returns of a policy.",
        }
    )


@takes_fields(ScoreCall)
def normalised_scores(call: ScoreCall) -> NormalisedScores:
    """Return normalised scores of returns by the reference scores of a dataset; works offline.

    Raises:
        UnknownDataset: no recipe and no folder has that name; the message has the nearest ones.
        UsageError: the dataset has no reference scores, or a return or a score is not finite.
    """
    config, returns = call.chosen_config(), tuple(map(_number, call.returns))
    info = dataset_info(call.id, config=config)
    low, high, source = _references(info)
    scores = tuple(_score(each, low, high) for each in returns)
    return NormalisedScores(info.id, low, high, source, returns, scores)


def _number(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise wrong_value("returns", "finite numbers", value)
    return number


def _score(number: float, low: float, high: float) -> float:
    score = 100 * (number - low) / (high - low)
    if not math.isfinite(score):
        raise UsageError(
            f"{argument('returns')}: the score of {number!r} is not finite.",
            argument="returns",
            expected="returns with finite scores",
            found=number,
        )
    return score


def _references(info: DatasetInfo) -> tuple[float, float, str]:
    """Return the two reference scores of a dataset, and their source."""
    manifest = info.manifest
    parent = f", derived from {manifest.parent['id']}" if manifest and manifest.parent else ""
    for source, known in (
        (f"the manifest of {info.id}{parent}", manifest.metadata if manifest else {}),
        (f"the catalogue of {info.family}", info.details or {}),
    ):
        low, high = known.get("ref_min_score"), known.get("ref_max_score")
        if not (isinstance(low, int | float) and isinstance(high, int | float)):
            continue
        if -math.inf < low < high < math.inf:
            return float(low), float(high), source
    if manifest:
        manifest.check_rewards("a score")
    raise UsageError(
        f"{info.id} has no reference scores of a random and an expert policy, in its catalogue or "
        "its publisher's files.",
        id=info.id,
        expected=("ref_min_score", "ref_max_score"),
        advice="D4RL's datasets have them. See: rlds list 'd4rl/*'",
    )
