"""Products of tiles are small: more than one thread for each costs more than it gains."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import ThreadpoolController


@pytest.fixture(scope="package", autouse=True)
def _one_thread() -> Iterator[None]:
    with ThreadpoolController().limit(limits=1, user_api="blas"):
        yield
