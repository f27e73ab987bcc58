"""Dispatch on threads: what derivations and plans hold there, by name."""

from __future__ import annotations

from axe_eq.kernel import dispatch
from axe_eq.kernel.threads.ir import Kernel, Where

Context = dispatch.Context[Where]
Planned = dispatch.Planned[Kernel]
