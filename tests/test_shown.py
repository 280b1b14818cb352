"""What is printed of objects is short, and notebooks show tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas
import pytest

from datasets_cli import ExperienceReplay, Mixture, ReplayBufferEnsemble, open_storage
from datasets_cli.config import Config
from datasets_cli.core.quantities import few_lines
from datasets_cli.errors import UsageError
from datasets_cli.experience.in_memory import to_pandas
from datasets_cli.schema.columns import Column
from tests.support.text_rows import ODD_TEXTS, steps_of, write


def test_no_repr_of_a_dataset_has_more_than_twenty_lines(hopper: str) -> None:
    replay = ExperienceReplay(hopper, batch_size=8)
    copies = [replay] * 30
    shown = [
        replay,
        replay.specs,
        replay.storage,
        replay.trajectories,
        replay.take(1, by="-return"),
    ]
    shown += [ReplayBufferEnsemble(*copies), Mixture(copies), replay.sequences(length=3)]
    for each in (*shown, replay.manifest):
        assert repr(each).count("\n") < 20, type(each)
        assert max(map(len, repr(each).splitlines())) < 400, type(each)


def test_an_ensemble_has_a_line_for_each_member_and_an_empty_table_one(hopper: str) -> None:
    replay = ExperienceReplay(hopper, batch_size=8)
    lines = repr(ReplayBufferEnsemble(replay, replay.take(1), batch_size=4)).splitlines()
    assert lines[0] == "ReplayBufferEnsemble(" and lines[3:] == ["    batch_size=4)"]
    assert lines[1].startswith(
        "    ExperienceReplay(DatasetStorage(d4rl/hopper-medium-v2, shape=[911]"
    )
    assert lines[2].endswith("chosen by take(1) ...), RandomSampler()),")
    columns = "number, start, length, num_transitions, return, terminated, truncated"
    empty = replay.take(0).trajectories
    assert repr(empty) == f"Trajectories of {hopper}, 0 rows; columns: {columns}"


def test_a_manifest_of_many_files_is_shown_in_a_line(hopper: str) -> None:
    manifest = ExperienceReplay(hopper).manifest
    files = {f"{n}.memmap": {"bytes": 1, "sha256": "0" * 64} for n in range(1000)}
    columns = tuple(Column((f"{n}",), "float32", (1,)) for n in range(1000))
    shown = repr(replace(manifest, files=files, columns=columns))
    assert "1,000 columns, 1,000 files" in shown and manifest.id in shown and len(shown) < 300


def test_what_is_left_out_of_a_long_text_is_counted() -> None:
    lines = [f"line {number}" for number in range(100)]
    shown = few_lines("\n".join(lines)).splitlines()
    assert len(shown) == 20 and shown[:12] == lines[:12] and shown[-7:] == lines[-7:]
    assert shown[12] == "    ... 81 more lines"
    assert few_lines("\n".join(lines[:20])) == "\n".join(lines[:20])


def test_notebooks_show_tables_of_datasets_specs_and_trajectories(hopper: str) -> None:
    replay = ExperienceReplay(hopper)
    for shown in (replay, replay.storage, replay.specs):
        assert "<td>next.observation</td>" in shown._repr_html_()
    assert "d4rl/hopper-medium-v2: 911 transitions in 2 trajectories" in replay._repr_html_()
    assert "<th>return</th>" in replay.trajectories._repr_html_()
    assert replay.specs.to_pandas().set_index("key").loc["action", "shape"] == [3]


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_rows_are_a_table_of_pandas(tmp_path: Path, config: Config, layout: str) -> None:
    folder = write(tmp_path, layout, steps_of(ODD_TEXTS, wide=np.zeros((14, 1001))))
    columns = ["action", ("observation", "x"), ("observation", "mission")]
    table = to_pandas(open_storage(folder, text=True, columns=columns))
    names = {"action", "observation.x.0", "observation.x.1", "observation.mission"}
    assert isinstance(table, pandas.DataFrame) and set(table) == names
    assert table["observation.x.1"].tolist() == [2.0 * row + 1 for row in range(14)]
    assert table["observation.mission"][3] == ODD_TEXTS[3]
    with pytest.raises(UsageError, match=r"numbers per row; expected 1,000 or fewer"):
        to_pandas(open_storage(folder))
