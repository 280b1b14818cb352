"""CRC-32C, the checksum of TFRecord files: google-crc32c's where it is installed, else by a table.

A register that begins empty is linear: that of a text is that of its first half, moved over as many
zeros as the second half has bytes, added to that of the second half. So the stripes of a text are
worked on side by side, and folded in pairs.
"""

from __future__ import annotations

from functools import cache

import numpy as np

POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected: RFC 3720, appendix B.4
ONES = 0xFFFFFFFF
STRIPE_BYTES = 64
FEW_BYTES = 2048  # below this the plain loop is faster
SLICE_BYTES = 16 << 20  # of which there are copies


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    try:
        import google_crc32c
    except ImportError:  # the extra `fast`: a hundred times as fast
        return crc32c_by_table(data)
    return int(google_crc32c.value(data))


def crc32c_by_table(data: bytes) -> int:
    """Return the same without that package."""
    register = ONES
    for start in range(0, len(data), SLICE_BYTES):
        part = data[start : start + SLICE_BYTES]
        register = _of_few(part, register) if len(part) < FEW_BYTES else _of_many(part, register)
    return register ^ ONES


def _of_few(data: bytes, register: int) -> int:
    table = _table().tolist()
    for byte in data:
        register = table[(register ^ byte) & 255] ^ (register >> 8)
    return register


def _of_many(data: bytes, register: int) -> int:
    # Zeros in front leave an empty register as it is, and one with something in it is the same as
    # an empty one whose first bytes are added to it.
    padding = -len(data) % STRIPE_BYTES
    padded = np.frombuffer(bytes(padding) + data, np.uint8).copy()
    padded[padding : padding + 4] ^= np.frombuffer(register.to_bytes(4, "little"), np.uint8)
    registers = np.zeros(len(padded) // STRIPE_BYTES, np.uint32)
    images = np.uint32(1) << np.arange(32, dtype=np.uint32)  # of each bit, over a stripe of zeros
    table = _table()
    for column in np.ascontiguousarray(padded.reshape(-1, STRIPE_BYTES).T):
        registers = table[(registers ^ column) & 255] ^ (registers >> 8)
        images = table[images & 255] ^ (images >> 8)
    while len(registers) > 1:
        registers = np.concatenate((np.zeros(len(registers) % 2, np.uint32), registers))
        registers = _moved(registers[0::2], images) ^ registers[1::2]
        images = _moved(images, images)  # over twice as many zeros
    return int(registers[0])


def _moved(registers: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Return registers ``[n]`` moved over zeros, of which each bit has an image."""
    bits = registers[:, None] >> np.arange(32, dtype=np.uint32) & 1
    return np.asarray(np.bitwise_xor.reduce(np.where(bits, images, np.uint32(0)), axis=1))


@cache
def _table() -> np.ndarray:
    """Return what each byte becomes over eight zero bits."""
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (table & 1) * np.uint32(POLYNOMIAL)
    return table
