"""Rules of users run beside ours, and what is wrong with them is told by its line."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli.audit import own_rules
from datasets_cli.audit.rule import Finding, RowNumbers, Rule
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support.d4rl_cuts import CUTS
from tests.support.executed import blocks
from tests.support.refusals import refused

ID = "d4rl/door-human-v1"
(EXAMPLE,) = (each.code for each in blocks("docs/audit.md") if each.file)
"""The rule of the page."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = CUTS["door-human-v1"].lay_out(tmp_path_factory.mktemp("source"))
    options = InstallOptions(accept_any=True, source=str(source))
    root = tmp_path_factory.mktemp("root")
    install_dataset(ID, Config(root), options)
    return root


@pytest.fixture
def config(installed: Path, tmp_path: Path) -> Config:
    return Config(shutil.copytree(installed, tmp_path / "root"))


def written(folder: Path, *changes: tuple[str, str]) -> Path:
    """Return a file with the rule of the page, changed so."""
    text = EXAMPLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / "mine.py"
    path.write_text(text, encoding="utf-8")
    return path


def kept(config: Config) -> dict[str, object]:
    (table,) = config.root.glob("tables/*/audit.json")
    return json.loads(table.read_text())


def test_the_rule_of_the_page_has_15_to_25_lines() -> None:
    assert 15 <= len(EXAMPLE.splitlines()) <= 25


def test_an_own_rule_finds_the_rows_that_h5py_says(config: Config, tmp_path: Path) -> None:
    (audited,) = datasets_cli.audit_datasets(ID, rules=written(tmp_path), config=config)
    (own,) = (each for each in audited.findings if each.rule == "saturated-action")
    with h5py.File(CUTS["door-human-v1"].path) as source:
        largest = np.abs(source["actions"][:]).max(1)
        last = np.flatnonzero(source["timeouts"][:])  # no row: nothing follows it
    expected = np.flatnonzero(np.delete(largest, last) > 0.99)
    assert list(own.rows) == expected.tolist() and own.count == len(expected) > 0
    assert audited.rules["saturated-action"] == 1 and len(audited.rules) > 1


def test_what_own_rules_find_is_not_kept_and_changes_no_other_audit(
    config: Config, tmp_path: Path
) -> None:
    before = kept(config)
    datasets_cli.audit_datasets(ID, rules=written(tmp_path), config=config)
    assert kept(config) == before and "saturated-action" not in before["rules"]  # type: ignore[operator]
    (plain,) = datasets_cli.audit_datasets(ID, config=config)
    assert dict(plain.rules) == before["rules"]


def test_an_audit_without_findings_says_what_its_rules_cannot_find(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = (["time-limit-terminal"], ["false-end"], ["false-end", "frozen-state"], ["idle"])
    said = []
    for names in calls:
        rules = [word for name in names for word in ("--rule", name)]
        assert main(["--root", str(config.root), "audit", ID, *rules]) == 0
        last = capsys.readouterr().out.splitlines()[1:]
        said.append({name for name in names if any(line.strip().startswith(name) for line in last)})
    assert said == [{"time-limit-terminal"}, {"false-end"}, {"false-end"}, set()]


def test_rules_are_chosen_by_name_and_given_as_objects(config: Config) -> None:
    names: dict[str, object] = {"__name__": __name__}
    exec(EXAMPLE, names)
    (rule,) = names["RULES"]  # type: ignore[misc]
    assert isinstance(rule, Rule)
    (audited,) = datasets_cli.audit_datasets(ID, rules=rule, rule=rule.name, config=config)
    assert list(audited.rules) == ["saturated-action"] == [each.rule for each in audited.findings]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("largest > 0.99", "largest > 1 / 0"),
        ('abs(rows.values(("action",)))', 'abs(rows.values(("nope",)))'),
        ("rows.numbers[largest > 0.99]", "largest > 0.99"),
        ("return rule.found", "return rules.found"),
        ('"note"', '"dreadful"'),
        ("RULES = (", "RULES = 1 / 0 + ("),
    ],
)
def test_code_that_raises_is_named_with_its_line(
    old: str, new: str, config: Config, tmp_path: Path
) -> None:
    path, before = written(tmp_path, (old, new)), kept(config)
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if new in text)
    with pytest.raises(RldsError, match=rf"in line {line}\b") as caught:
        datasets_cli.audit_datasets(ID, rules=path, config=config)
    assert caught.value.exit_code == 1 and str(path) in str(caught.value)
    assert kept(config) == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rows.numbers[", "(rows.numbers + 10**6)[", "saturated-action reports rows 10000"),
        ('frozenset([("action",)])', 'frozenset([("nope",)])', "reads nope"),
        ("rule.found(self.rows, ", "(self.rows, ", "expected rule.found"),
    ],
)
def test_what_no_rule_can_find_is_refused(
    old: str, new: str, said: str, config: Config, tmp_path: Path
) -> None:
    with pytest.raises(RldsError, match=said):
        datasets_cli.audit_datasets(ID, rules=written(tmp_path, (old, new)), config=config)


@pytest.mark.parametrize(
    ("old", "new"),
    [("saturated-action", "false-end"), ('"C"', '"A"'), ("RULES =", "OTHERS =")],
)
def test_rules_that_hide_others_or_repair_or_are_not_there_are_refused(
    old: str, new: str, config: Config, tmp_path: Path
) -> None:
    path = written(tmp_path, (old, new))
    with refused(UsageError, argument="rules"):
        datasets_cli.audit_datasets(ID, rules=path, config=config)
    assert main(["--root", str(config.root), "audit", "--rules", str(path)]) == 2


def test_a_file_that_is_not_there_is_refused(config: Config, tmp_path: Path) -> None:
    for path in (tmp_path / "none.py", tmp_path):
        with refused(UsageError, argument="rules"):
            datasets_cli.audit_datasets(ID, rules=path, config=config)


def test_entry_points_run_and_one_that_fails_is_left_out(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    points = [EntryPoint(name, f"{name}:RULES", own_rules.GROUP) for name in ("mine", "nothing")]
    monkeypatch.setattr(own_rules, "entry_points", lambda group: points)
    (audited,) = datasets_cli.audit_datasets(ID, config=config)
    assert "saturated-action" in [each.rule for each in audited.findings]
    assert "nothing" in caplog.text and "saturated-action" not in str(kept(config))


class FromMetadata:
    """A state that looks at no column; ``keys`` raises where a test says so."""

    def __init__(self, keys: object = frozenset()) -> None:
        self.keys = keys

    def observe(self, rows: object) -> None:
        raise AssertionError("it looks at nothing")

    def conclude(self, rule: Rule) -> Finding | None:
        rows = RowNumbers()
        rows.add(np.array([5]))
        return rule.found(rows)


def test_a_rule_may_look_at_no_column_and_a_wrong_state_is_named(config: Config) -> None:
    rule = Rule("stated", 1, "note", "C", (), "us", "It is stated.", lambda about: FromMetadata())
    (audited,) = datasets_cli.audit_datasets(ID, rules=rule, rule="stated", config=config)
    assert [each.rows for each in audited.findings] == [(5,)]
    wrong = replace(rule, begin=lambda about: FromMetadata(3))
    with pytest.raises(RldsError, match="rule stated fails in keys"):
        datasets_cli.audit_datasets(ID, rules=wrong, config=config)


def test_what_is_stated_of_a_dataset_is_not_said_of_what_is_made_of_it(tmp_path: Path) -> None:
    config = Config(tmp_path / "root")
    rows = np.arange(5.0)[:, None]
    lengths = {"trajectory_lengths": [3, 9]}
    columns = {"observation": rows, "action": rows, "reward": rows}
    datasets_cli.create_dataset("mine/a", columns, lengths=[3, 2], info=lengths, config=config)
    datasets_cli.preprocess(
        "mine/a", "copy:copy", "b", where="length > 1", config=config, num_workers=0
    )
    found, derived = datasets_cli.audit_datasets(["mine/a", "derived/b"], config=config)
    assert [each.rule for each in found.findings if each.severity == "wrong"] == ["stated-length"]
    assert not [each for each in derived.findings if each.severity == "wrong"]


def said(finding: object) -> Rule:
    """A rule that looks at actions and concludes with something."""
    state = Mock(keys=frozenset([("action",)]))
    return Rule(
        "mine", 1, "note", "C", (), "me", "A row.", lambda about: state, "row", lambda *_: finding
    )


@pytest.mark.parametrize("wrong", [3, [3], [None], [lambda rows: None], [said, said], {"mine": 3}])
def test_what_is_no_rule_is_refused(wrong: Any, config: Config) -> None:
    with refused(UsageError, argument="rules"):
        datasets_cli.audit_datasets(ID, rules=wrong, config=config)


NO_ROWS = Finding("mine", 1, "note", "row", 0, (), "", "A row.")


@pytest.mark.parametrize(
    "finding",
    [True, [], "a row", NO_ROWS, replace(NO_ROWS, rows=(10**9,)), replace(NO_ROWS, rows=("a",))],
)
def test_a_rule_that_concludes_with_no_finding_is_named(finding: Any, config: Config) -> None:
    with pytest.raises(RldsError, match="The rule mine "):
        datasets_cli.audit_datasets(ID, rules=said(finding), config=config)


def test_a_rule_that_finds_nothing_finds_nothing(config: Config) -> None:
    (audited,) = datasets_cli.audit_datasets(ID, rules=said(None), rule="mine", config=config)
    assert audited.findings == () and dict(audited.rules) == {"mine": 1}
