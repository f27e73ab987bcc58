"""Compiled kernels on disk, by everything their machine code depends on.

An entry is a digest of its payload followed by the payload, written aside and renamed: a truncated
or changed entry is seen, removed and rebuilt, and readers never meet half an entry.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from axe_eq.debug import switches
from axe_eq.errors import DeviceError

_MAGIC = b"axe-eq kernel 1\n"
_DIGEST = hashlib.sha256().digest_size


def key(*parts: str) -> str:
    """A name for what depends on all of `parts`."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode()
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()


def folder() -> Path:
    """Where entries are kept; AXE_CACHE_DIR moves it."""
    return switches().cache_folder / "cuda"


def load(name: str) -> bytes | None:
    """The payload of an entry; None where there is none or it is damaged (it is then removed)."""
    path = folder() / name
    try:
        data = path.read_bytes()
    except OSError:
        return None
    digest, payload = data[len(_MAGIC) : len(_MAGIC) + _DIGEST], data[len(_MAGIC) + _DIGEST :]
    if data.startswith(_MAGIC) and hashlib.sha256(payload).digest() == digest:
        return payload
    path.unlink(missing_ok=True)
    return None


def store(name: str, payload: bytes) -> None:
    """Write an entry.

    Raises:
        DeviceError: the folder cannot be written.
    """
    try:
        folder().mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder())
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
        os.replace(temporary, folder() / name)
    except OSError as error:
        raise DeviceError(
            f"cache directory {folder()}", f"cannot be written ({error.strerror})",
            "a writable folder", hint="set AXE_CACHE_DIR",
        ) from None  # fmt: skip


def get(name: str, build: Callable[[], bytes]) -> bytes:
    """The payload of an entry, built where it is missing or damaged."""
    payload = load(name)
    if payload is None:
        payload = build()
        store(name, payload)
    return payload
