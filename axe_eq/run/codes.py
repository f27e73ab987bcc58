"""Machine code of a mesh plan's local steps, as one text of bytes: in saved files and launches."""

from __future__ import annotations

import json
from collections.abc import Mapping


def to_bytes(codes: Mapping[str, bytes]) -> bytes:
    """A line of names and lengths, then the code of every step."""
    head = json.dumps({name: len(code) for name, code in codes.items()})
    return head.encode() + b"\n" + b"".join(codes.values())


def from_bytes(data: bytes) -> dict[str, bytes]:
    """Inverse of `to_bytes`.

    Raises:
        ValueError: not such bytes.
    """
    head, _, rest = data.partition(b"\n")
    found, begin = {}, 0
    for name, length in json.loads(head).items():
        found[name] = rest[begin : begin + length]
        begin += length
    if begin != len(rest):
        raise ValueError(f"{len(rest)} bytes of code, {begin} told")
    return found
