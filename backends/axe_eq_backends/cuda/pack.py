"""The CUDA pack: machines, cost model, emitter and runner of NVIDIA GPUs."""

from __future__ import annotations

from axe_eq.pack import Later, Pack
from axe_eq_backends.cuda.emitter import CudaEmitter
from axe_eq_backends.cuda.families import OWN
from axe_eq_backends.cuda.lane_cost import Lanes, Scans
from axe_eq_backends.cuda.register_cost import RegisterProducts
from axe_eq_backends.cuda.stream_cost import Streaming
from axe_eq_backends.cuda.target import b200, h200
from axe_eq_backends.cuda.tile_cost import TensorCores

PACK = Pack("cuda", summary="NVIDIA GPUs: machines, cost model, kernels")
PACK.target(h200)
PACK.target(b200)
for _schedule in (TensorCores(), Lanes(), RegisterProducts(), Streaming(), Scans()):
    PACK.schedule(_schedule)
for _family in OWN:
    PACK.row_family(h200.family, _family)
PACK.emitters[h200.family] = CudaEmitter()
PACK.runners[h200.family] = Later("axe_eq_backends.cuda.run:RUNNER")
PACK.interpreters[h200.family] = Later("axe_eq_backends.cuda.interpret:INTERPRETER")
