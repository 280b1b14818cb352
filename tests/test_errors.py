"""Errors carry what failed as attributes, also across processes and as JSON."""

from __future__ import annotations

import pickle

import pytest

from datasets_cli import errors


def failure() -> errors.WrongRows:
    return errors.WrongRows(
        "The rows have another shape.",
        argument="data",
        key=("next", "reward"),
        row=3,
        expected=(1,),
        found=(2,),
        advice="Reshape them.",
    )


def test_an_error_has_what_it_was_given_and_none_elsewhere() -> None:
    error = failure()
    assert (error.argument, error.key, error.row) == ("data", ("next", "reward"), 3)
    assert (error.expected, error.found, error.advice) == ((1,), (2,), "Reshape them.")
    assert (error.id, error.path) == (None, None)


def test_advice_is_the_last_sentence_of_the_message() -> None:
    assert str(failure()) == "The rows have another shape. Reshape them."


def test_attributes_survive_a_worker_and_an_addition() -> None:
    error = failure()
    error.append(" (member 2)")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "The rows have another shape. Reshape them. (member 2)"
    assert (copy.key, copy.row, copy.expected) == (("next", "reward"), 3, (1,))


def test_json_has_the_attributes_that_are_set() -> None:
    assert failure().to_json() == {
        "type": "WrongRows",
        "message": "The rows have another shape. Reshape them.",
        "exit_code": 2,
        "argument": "data",
        "key": ["next", "reward"],
        "row": 3,
        "expected": [1],
        "found": [2],
        "advice": "Reshape them.",
    }


@pytest.mark.parametrize("name", ["WrongRows", "WrongState", "WrongSize", "NotWritable"])
def test_the_nouns_of_a_wrong_request_are_value_errors_too(name: str) -> None:
    assert issubclass(getattr(errors, name), (errors.UsageError, ValueError))


def test_advice_names_options_as_the_message_does() -> None:
    error = errors.UsageError("No.", advice=f"Use {errors.by_reader('--layout', 'layout=')}.")
    assert (error.advice, str(error)) == ("Use layout=.", "No. Use layout=.")
