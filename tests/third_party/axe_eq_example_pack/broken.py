"""A pack that does not load: what it needs is not installed."""

import axe_eq_a_library_that_nobody_has  # type: ignore[import-not-found]  # noqa: F401
