"""The names of datasets_cli.project, for type checkers and editors."""

from datasets_cli.preprocessing.pipeline import Pipeline as Pipeline
from datasets_cli.project.file import StepFile as StepFile
from datasets_cli.project.open import add_data as add_data
from datasets_cli.project.open import declared_datasets as declared_datasets
from datasets_cli.project.open import open_dataset as open_dataset
from datasets_cli.project.step import PreprocessStep as PreprocessStep

_LAZY_IMPORTS: dict[str, str]
