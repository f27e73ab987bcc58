"""Results on disk, named by everything they depend on.

An entry is a digest of its payload followed by the payload, written aside and renamed: a truncated
or changed entry is seen, removed and made again, readers never meet half an entry, and writers of
one entry need no lock. Entries are never updated, only added; removing any of them is safe.

A folder that cannot be written is an error where the user named it (AXE_CACHE_DIR), and one warning
where it is the default: results are then made anew each time.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from axe_eq.debug import switches
from axe_eq.errors import SearchError

T = TypeVar("T")
_MAGIC = b"axe-eq cache 1\n"
_DIGEST_BYTES = hashlib.sha256().digest_size
_told: set[Path | None] = set()  # folders that the user was warned about


def key(*parts: str | bytes) -> str:
    """A name for what depends on all of `parts`, in this order."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little") + data)
    return h.hexdigest()


@dataclass(frozen=True)
class Cache:
    """One kind of result ("programs", "kernels"), in a folder of its own."""

    kind: str

    @property
    def folder(self) -> Path:
        """Where entries are kept; AXE_CACHE_DIR moves it.

        Raises:
            OSError: there is no such place.
        """
        return switches().cache_folder / self.kind

    def load(self, name: str) -> bytes | None:
        """The payload of an entry; None where there is none or it is damaged (then removed)."""
        if not switches().cache:
            return None
        try:
            data = (self.folder / name).read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        digest, payload = data[len(_MAGIC) : start], data[start:]
        if data.startswith(_MAGIC) and hashlib.sha256(payload).digest() == digest:
            return payload
        self.remove(name)
        return None

    def read(self, name: str, reader: Callable[[bytes], T]) -> T | None:
        """What `reader` makes of an entry; None where there is none or it is damaged.

        An entry that its reader does not take is damaged too, whatever its digest: it is removed,
        so that it is made again.
        """
        payload = self.load(name)
        if payload is None:
            return None
        try:
            return reader(payload)
        except Exception:  # what is no entry may fail at any point, and can always be made again
            self.remove(name)
            return None

    def store(self, name: str, payload: bytes) -> None:
        """Write an entry.

        Raises:
            SearchError: AXE_CACHE_DIR names a folder that cannot be written.
        """
        if not switches().cache:
            return
        folder = part = None
        try:
            folder = self.folder
            folder.mkdir(parents=True, exist_ok=True)
            handle, part = tempfile.mkstemp(dir=folder, prefix=".part-")
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(payload).digest() + payload)
            os.replace(part, folder / name)
        except OSError as error:
            if part is not None:
                with suppress(OSError):
                    os.unlink(part)
            _unwritable(folder, error)

    def remove(self, name: str) -> None:
        """Remove an entry, where that is possible."""
        with suppress(OSError):
            (self.folder / name).unlink()

    def get(self, name: str, build: Callable[[], bytes], reader: Callable[[bytes], T]) -> T:
        """What `reader` makes of an entry, built where it is missing or damaged."""
        found = self.read(name, reader)
        if found is None:
            payload = build()
            self.store(name, payload)
            found = reader(payload)
        return found


def _unwritable(folder: Path | None, error: OSError) -> None:
    where = "the user's folder" if folder is None else repr(str(folder))
    what = f"cannot write to {where} ({error.strerror or error})"
    if switches().cache_dir is not None:
        raise SearchError(
            "switch AXE_CACHE_DIR", what, "a writable folder", hint="AXE_CACHE=0 uses no cache"
        ) from None
    if folder not in _told:
        _told.add(folder)
        text = f"compiled programs are not kept: {what}; set AXE_CACHE_DIR to a writable folder"
        warnings.warn(text, RuntimeWarning, stacklevel=4)
