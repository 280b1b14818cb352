"""Mapping a function over a dataset in parallel, into a new dataset."""

from datasets_cli.preprocess.part import Function, apply
from datasets_cli.preprocess.run import preprocess

__all__ = ["Function", "apply", "preprocess"]
