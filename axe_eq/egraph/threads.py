"""The threads of e-graphs, which a forked process does not have.

egglog starts a pool of threads at the first e-graph of a process. A child that is forked after that
has the pool and none of its threads: whatever it asks an e-graph waits for ever. Such a child
searches in a fresh process (`axe_eq.egraph.worker`), and an e-graph that is asked in it all the
same is an error.
"""

from __future__ import annotations

import os

from axe_eq.errors import SearchError


class _Threads:
    """What this process knows about the pool."""

    def __init__(self) -> None:
        self.started = self.lost = False

    def forked(self) -> None:
        """Take note that this process is a child."""
        self.lost = self.lost or self.started


_threads = _Threads()
if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_threads.forked)


def are_lost() -> bool:
    """Whether this process was forked from one that had e-graphs."""
    return _threads.lost


def need_threads() -> None:
    """Say that an e-graph is used now.

    Raises:
        SearchError: this process was forked from one that had e-graphs.
    """
    if _threads.lost:
        raise SearchError(
            "e-graph", "this process was forked after its parent's first search, without the "
            "threads of e-graphs", "a process that was spawned, or forked before",
            hint='multiprocessing.get_context("spawn")',
        )  # fmt: skip
    _threads.started = True
