"""The NKI pack: Trainium machines, schedules, emitter, interpreter and runner."""

from __future__ import annotations

from axe_eq.pack import Pack
from axe_eq_backends.nki.cost import SCHEDULES
from axe_eq_backends.nki.families import OWN
from axe_eq_backends.nki.run import NkiEmitter, NkiInterpreter, NkiRunner
from axe_eq_backends.nki.target import FAMILY, trn1, trn2, trn3

PACK = Pack("nki", summary="AWS Trainium: machines, schedules, NKI kernels")
for _target in (trn1, trn2, trn3):
    PACK.target(_target)
for _schedule in SCHEDULES.values():
    PACK.schedule(_schedule)
for _family in OWN:
    PACK.row_family(FAMILY, _family)
PACK.emitters[FAMILY] = NkiEmitter()
PACK.runners[FAMILY] = NkiRunner()
PACK.interpreters[FAMILY] = NkiInterpreter()
