"""NVRTC: emitted text to machine code, on any machine; no device is needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from axe_eq.errors import DeviceError, EmitError


@dataclass(frozen=True)
class Binary:
    """A compiled kernel.

    Attributes:
        cubin: machine code.
        log: what the compiler said (register use, warnings).
        version: NVRTC's version.
    """

    cubin: bytes
    log: str
    version: str


@cache
def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError:
        raise DeviceError(
            "NVRTC", "package cuda.bindings is not installed", "cuda-bindings",
            hint="pip install cuda-bindings nvidia-cuda-nvrtc",
        ) from None  # fmt: skip
    try:
        nvrtc.nvrtcVersion()
    except Exception as error:  # the bindings raise their own class where the library is missing
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise DeviceError(
            "NVRTC", f"cannot be loaded ({reason})", "its shared library",
            hint="pip install nvidia-cuda-nvrtc",
        ) from None  # fmt: skip
    return nvrtc


def version() -> str:
    """NVRTC's version, "13.0".

    Raises:
        DeviceError: NVRTC is not installed.
    """
    _, major, minor = _nvrtc().nvrtcVersion()
    return f"{major}.{minor}"


def options(compute_capability: int) -> tuple[str, ...]:
    """Compiler options for a target; architecture-specific instructions need the "a" suffix.

    NVRTC has a cache of its own since 12.9. Ours makes it useless, and to look into it NVRTC
    initialises the CUDA driver, which takes longer than compiling a kernel.

    Raises:
        DeviceError: NVRTC is not installed.
    """
    found = (f"--gpu-architecture=sm_{compute_capability}a", "--std=c++17", "--ptxas-options=-v")
    has_cache = tuple(map(int, version().split("."))) >= (12, 9)
    return (*found, "--no-cache") if has_cache else found


def compile_text(text: str, compute_capability: int, name: str = "kernel") -> Binary:
    """Compile CUDA C++ to machine code.

    Raises:
        DeviceError: NVRTC is not installed.
        EmitError: the text does not compile; the message holds the compiler's first lines.
    """
    nvrtc = _nvrtc()
    program = _check(
        nvrtc, nvrtc.nvrtcCreateProgram(text.encode(), f"{name}.cu".encode(), 0, [], [])
    )
    flags = [option.encode() for option in options(compute_capability)]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
    log = _log(nvrtc, program)
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        nvrtc.nvrtcDestroyProgram(program)
        raise EmitError(f"kernel {name}", f"does not compile:\n{log[:2000]}", "valid CUDA C++")
    size = _check(nvrtc, nvrtc.nvrtcGetCUBINSize(program))
    cubin = _room(size)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    return Binary(cubin, log, version())


def _room(size: int) -> bytes:
    """Bytes for NVRTC to write to: no one else's, as Python shares those of length 0 and 1."""
    return bytes(max(size, 2))


def compile_texts(jobs: Sequence[tuple[str, int, str]]) -> list[Binary]:
    """`compile_text` for (text, compute capability, name) each, at the same time.

    Raises:
        DeviceError, EmitError: as `compile_text`, for the first that fails.
    """
    if len(jobs) < 2:
        return [compile_text(*job) for job in jobs]
    _nvrtc()
    from concurrent.futures import ThreadPoolExecutor  # a search compiles nothing

    with ThreadPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda job: compile_text(*job), jobs))


def _check(nvrtc: Any, returned: Any) -> Any:
    result, *values = returned
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceError(
            "NVRTC", f"call failed: {nvrtc.nvrtcGetErrorString(result)[1]}", "success"
        )
    return values[0]


def _log(nvrtc: Any, program: Any) -> str:
    size = _check(nvrtc, nvrtc.nvrtcGetProgramLogSize(program))
    log = _room(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return log.decode(errors="replace").rstrip("\0").strip()
