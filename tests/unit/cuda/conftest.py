"""Fixtures of the CUDA backend's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.cuda.fake_driver import FakeDriver
from tests.unit.cuda.fake_programs import KERNELS, forget, use


@pytest.fixture
def cu(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver without a device, in place of the machine's."""
    fake = FakeDriver(KERNELS)
    yield use(fake, monkeypatch)
    fake.wait()
    forget()
