"""Steps and their datasets: globs replaced by what they match, and the order of the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from datasets_cli.catalogue.names import is_glob, match, resolve
from datasets_cli.config import Config
from datasets_cli.errors import DatasetNotInstalled, UnknownDataset, UsageError
from datasets_cli.install.installed import installed_id
from datasets_cli.preprocessing.derived import FAMILY
from datasets_cli.project.step import PreprocessStep
from datasets_cli.store.cache_root import CacheRoot


@dataclass(frozen=True)
class Derivation:
    """One dataset that a step makes of another."""

    step: PreprocessStep
    label: str
    input: str
    out: str


def expand(steps: Mapping[str, PreprocessStep], config: Config) -> list[Derivation]:
    """Return what steps make of what is installed and of one another's results, in their order."""
    installed = list(CacheRoot(config.root).installed())
    outs: set[str] = set()
    # A glob may match what another step makes, whose globs may match what a third one makes.
    for _ in range(len(steps) + 1):
        found = [
            Derivation(step, label, id, step.out_of(id))
            for label, step in steps.items()
            for id in _inputs(step, label, sorted({*installed, *outs}), config)
        ]
        before, outs = outs, {each.out for each in found}
        if outs == before:
            _check(steps, found)
            return found
    raise UsageError(
        f"{' and '.join(steps)} match one another's results without an end. Write ids, or narrower "
        "globs, as their input."
    )


def in_order(needs: Mapping[str, str]) -> list[str]:
    """Return ids, each after the one that it is made of, and in their own order otherwise."""
    ordered: dict[str, None] = {}
    for first in needs:
        chain = [first]
        while (below := needs[chain[-1]]) in needs and below not in ordered:
            if below in chain:
                circle = [*chain[chain.index(below) :], below]
                raise UsageError(
                    f"Steps form a circle: {' is made of '.join(circle)}. Change the input or the "
                    "out of one of them."
                )
            chain.append(below)
        ordered |= dict.fromkeys(reversed(chain))
    return list(ordered)


def _inputs(
    step: PreprocessStep, label: str, candidates: Sequence[str], config: Config
) -> list[str]:
    found: list[str] = []
    for text in step.inputs:
        found += _matched(step, text, candidates) if is_glob(text) else [_id(text, label, config)]
    return list(dict.fromkeys(found))


def _matched(step: PreprocessStep, glob: str, candidates: Sequence[str]) -> list[str]:
    """Return what a glob matches; never what the step makes of it, which would have no end."""
    if not glob.startswith(f"{FAMILY}/"):
        candidates = [id for id in candidates if not id.startswith(f"{FAMILY}/")]
    found = match([glob], candidates)
    own = {step.out_of(id) for id in found}
    return [id for id in found if id not in own]


def _id(text: str, label: str, config: Config) -> str:
    """Return the id that a text means; it need not be installed yet."""
    if text.startswith(f"{FAMILY}/"):
        return text
    try:
        return installed_id(text, config)
    except DatasetNotInstalled:
        return resolve(text, CacheRoot(config.root)).id
    except (UnknownDataset, UsageError) as error:
        raise type(error)(f"{_prefix(label)}{error}") from error


def _check(steps: Mapping[str, PreprocessStep], found: list[Derivation]) -> None:
    """Refuse a step that reads nothing, and two datasets of one name."""
    for label, step in steps.items():
        if not any(each.label == label for each in found):
            globs = " ".join(map(repr, step.inputs))
            raise UnknownDataset(
                f"{_prefix(label)}No installed dataset matches {globs}. See: rlds list "
                f"--installed. To install what is published: rlds download {globs}"
            )
    made: dict[str, Derivation] = {}
    for each in found:
        other = made.setdefault(each.out, each)
        if other is not each:
            labels = " and ".join(filter(None, dict.fromkeys((other.label, each.label))))
            raise UsageError(
                f"{_prefix(labels)}{each.out} would be made of {other.input} and of {each.input}. "
                "Give each a name of its own; {name} in out stands for the last part of the "
                "input's id."
            )


def _prefix(label: str) -> str:
    return f"{label}: " if label else ""
