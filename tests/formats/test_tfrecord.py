"""TFRecord files and their messages: all that is written is read back, all damage is refused."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from datasets_cli.errors import SourceError, arguments_named
from datasets_cli.formats.limits import raised_limits
from datasets_cli.formats.tfrecord import masked, parse_example, read_gzip_records, read_records
from tests.support import unplugged_files as files
from tests.support.paths import TEST_DATA
from tests.support.refusals import refused

BRIDGE = TEST_DATA / "tfrecord" / "bridge.tfrecord"

int64s = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40).map(lambda v: np.array(v, "<i8"))
float32s = st.lists(st.floats(width=32), max_size=40).map(lambda v: np.array(v, "<f4"))
strings = st.lists(st.binary(max_size=300), max_size=8)
messages = st.dictionaries(st.text(max_size=20), strings | float32s | int64s, max_size=6)


@pytest.fixture(params=["isal", "zlib"])
def unpacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "zlib":
        monkeypatch.setitem(sys.modules, "isal", None)


def read_all(data: bytes) -> list[bytes]:
    return [record.data for record in read_records(io.BytesIO(data), "a")]


def as_bytes(features: dict[str, files.Value]) -> dict[str, object]:
    """Return features as what can be compared: types, shapes and bytes."""
    return {
        name: [bytes(item) for item in value]
        if isinstance(value, list)
        else (value.dtype, value.shape, value.tobytes())
        for name, value in features.items()
    }


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :]


# The checksum


def test_the_checksums_of_rfc_3720_come_out() -> None:
    known = {bytes(32): 0x8A9136AA, b"\xff" * 32: 0x62A8AB43, bytes(range(32)): 0x46DD794E}
    for data, checksum in known.items():
        assert files.crc32c(data) == checksum
        assert struct.pack("<I", masked(data)) == files.masked_crc(data)


# Records


@given(st.lists(st.binary(max_size=2000), max_size=5))
def test_all_records_that_are_written_are_read(records: list[bytes]) -> None:
    assert read_all(b"".join(map(files.record, records))) == records


def test_a_large_record_between_small_ones_is_read() -> None:
    records = [b"", bytes(300_000), np.random.default_rng(0).bytes(100_000), b"x"]
    assert read_all(b"".join(map(files.record, records))) == records


@given(st.data(), st.lists(st.binary(max_size=400), min_size=1, max_size=3))
def test_no_flipped_bit_of_a_record_passes(draw: st.DataObject, records: list[bytes]) -> None:
    data = bytearray(b"".join(map(files.record, records)))
    position = draw.draw(st.integers(0, len(data) - 1))
    data[position] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(SourceError) as caught:
        read_all(bytes(data))
    assert caught.value.row in range(len(records)) or caught.value.key == "record_bytes"


@given(st.data(), st.lists(st.binary(max_size=400), min_size=1, max_size=3))
def test_a_cut_is_refused_where_records_do_not_end(
    draw: st.DataObject, records: list[bytes]
) -> None:
    written = [files.record(data) for data in records]
    ends = {sum(map(len, written[:count])) for count in range(len(written) + 1)}
    whole = b"".join(written)
    cut = draw.draw(st.sampled_from(sorted(set(range(len(whole))) - ends)))
    with pytest.raises(SourceError) as caught:
        read_all(whole[:cut])
    assert caught.value.row == sum(end <= cut for end in ends) - 1


def test_a_message_names_the_file_the_record_and_its_byte() -> None:
    data = files.record(b"12345") + flipped(files.record(b"67890"), 14)
    expected = "a, record 1 at byte 21 is damaged: the checksum of its 5 bytes is wrong."
    with pytest.raises(SourceError) as caught:
        read_all(data)
    assert str(caught.value) == expected and (caught.value.path, caught.value.row) == ("a", 1)


def test_an_absurd_length_is_refused_before_anything_is_read() -> None:
    length = struct.pack("<Q", 1 << 60)
    with pytest.raises(SourceError) as caught:
        read_all(length + files.masked_crc(length))
    assert (caught.value.key, caught.value.found) == ("record_bytes", 1 << 60)


def test_a_web_page_is_no_record() -> None:
    with refused(SourceError, row=0, path="a"):
        read_all(b"<!DOCTYPE html><html><body>Not found</body></html>")


# Compressed files


@pytest.mark.usefixtures("unpacking")
def test_a_gzip_file_gives_its_records(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(gzip.compress(files.record(b"one")) + gzip.compress(files.record(b"two")))
    assert [record.data for record in read_gzip_records(path)] == [b"one", b"two"]


@pytest.mark.usefixtures("unpacking")
def test_zeros_after_a_gzip_file_are_padding_and_anything_else_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "a"
    whole = gzip.compress(files.record(b"one"))
    path.write_bytes(whole + bytes(512))
    assert [record.data for record in read_gzip_records(path)] == [b"one"]
    for junk in (b"junk", bytes(8) + b"x", b"\x1f\x8b", b"<html>"):
        path.write_bytes(whole + junk)
        with pytest.raises(SourceError) as caught:
            list(read_gzip_records(path))
        assert caught.value.path == path


@pytest.mark.usefixtures("unpacking")
def test_every_flipped_byte_of_a_gzip_file_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    records = [np.random.default_rng(1).bytes(60), b"abc" * 50]
    whole = files.pack(records)
    untold = {4, 5, 6, 7, 8, 9}  # time, flags and system that made it: no checksum is over these
    for position in range(len(whole)):
        path.write_bytes(flipped(whole, position))
        if position in untold:
            assert [record.data for record in read_gzip_records(path)] == records
        else:
            with pytest.raises(SourceError):
                list(read_gzip_records(path))


@pytest.mark.usefixtures("unpacking")
def test_every_cut_of_a_gzip_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a"
    whole = files.pack([b"12345", b"abc" * 50])
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(SourceError) as caught:
            list(read_gzip_records(path))
        assert caught.value.path == path


def test_a_web_page_is_no_gzip_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"<!DOCTYPE html>")
    with pytest.raises(SourceError) as caught:
        list(read_gzip_records(tmp_path / "a"))
    assert caught.value.found == b"<!DOCTYPE html>"


# Messages


@given(messages, st.booleans())
def test_all_features_that_are_written_are_read(
    features: dict[str, files.Value], packed: bool
) -> None:
    parsed = parse_example(files.example(features, packed), "a")
    assert as_bytes(parsed) == as_bytes(features)


def test_unknown_fields_are_passed_over() -> None:
    unknown = [
        files.varint(9 << 3) + files.varint(-1),
        files.varint(9 << 3 | 1) + bytes(8),
        files.run_of_bytes(9, b"new"),
        files.varint(9 << 3 | 5) + bytes(4),
    ]
    features: dict[str, files.Value] = {"a": np.array([-1, 7])}
    parsed = parse_example(b"".join(unknown) + files.example(features), "a")
    assert as_bytes(parsed) == as_bytes(features)


def test_packed_and_single_numbers_may_alternate() -> None:
    first, last = files.run_of_bytes(1, files.varint(300) + b"\1"), b"\x08" + files.varint(-2)
    value = files.run_of_bytes(2, files.run_of_bytes(3, first + last))
    entry = files.run_of_bytes(1, files.run_of_bytes(1, files.run_of_bytes(1, b"n") + value))
    assert parse_example(entry, "a")["n"].tolist() == [300, 1, -2]


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        parse_example(data, "a")
    except SourceError as error:
        assert str(error).startswith("a is not a tf.train.Example")


@given(messages.filter(bool), st.data())
def test_a_message_that_is_cut_is_refused(
    features: dict[str, files.Value], draw: st.DataObject
) -> None:
    whole = files.example(features)
    with pytest.raises(SourceError):
        parse_example(whole[: draw.draw(st.integers(1, len(whole) - 1))], "a")


def test_a_feature_that_comes_twice_is_refused() -> None:
    one = files.example({"a": np.array([1])})
    with pytest.raises(SourceError) as caught:
        parse_example(one + one, "a")
    assert caught.value.found == "a"


# A file of TensorFlow's own writing


def test_a_real_record_is_read_to_the_byte() -> None:
    with BRIDGE.open("rb") as stream:
        (record,) = read_records(stream, BRIDGE.name)
    features = parse_example(record.data, record.where)
    assert len(features) == 20
    # Its features in their order, encoded again by the plain writer, are the same bytes.
    same = files.record(files.example(features)) == BRIDGE.read_bytes()
    assert same
    assert features["steps/is_first"].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    action = features["steps/action"]
    assert (action.dtype, action.shape) == (np.float32, (70,))
    sizes = [Image.open(io.BytesIO(data)).size for data in features["steps/observation/image_0"]]
    assert sizes == [(64, 64)] * 10


def test_depth_images_as_packed_floats_are_within_the_limit() -> None:
    depth = np.arange(3_000_000, dtype="<f4")  # at 256 bytes each, these would exceed it
    packed = files.run_of_bytes(2, files.run_of_bytes(1, depth.tobytes()))
    entry = files.run_of_bytes(1, b"depth") + files.run_of_bytes(2, packed)
    found = parse_example(files.run_of_bytes(1, files.run_of_bytes(1, entry)), "a record")
    assert np.array_equal(found["depth"], depth)


def test_a_limit_that_a_worker_met_is_an_option_on_the_command_line() -> None:
    entry = b"\x0a\x01x\x12\x07\x1a\x05\x0a\x03\x01\x02\x03"  # x: the whole numbers 1, 2 and 3
    example = b"\x0a" + bytes([len(entry) + 2]) + b"\x0a" + bytes([len(entry)]) + entry
    with raised_limits({"record_bytes": 600}), pytest.raises(SourceError) as caught:
        parse_example(example, "a file, record 7")
    from_worker = pickle.dumps(caught.value)
    with arguments_named(lambda name, _: f"--{name}"):
        assert "--limit record_bytes=NUMBER" in str(pickle.loads(from_worker))
    assert str(caught.value).startswith("a file, record 7: a list of integers of 3 values has")
