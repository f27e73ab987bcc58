"""A changed copy of a machine, and where its figures come from."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from axe_eq import plain
from axe_eq.errors import PackError
from axe_eq.pack import Pack
from axe_eq.pipeline.job import find_target
from axe_eq.target import Completion, Engine, Instr, Level, Link, Memory, Target
from axe_eq_backends.cuda.target import h200

CARD = Target(
    "card", "cuda", 4, "SM", (Memory("gmem", ("m",), 1 << 30, "device", 1e12),), source="measured"
)


def test_changed_figures_are_not_called_measured() -> None:
    """Rates are the whole machine's: a copy with more units keeps them, and says what changed."""
    larger = CARD.replace(name="larger", n_units=8, gmem=1 << 31)
    assert larger.source == "card (measured), with n_units, gmem changed"
    assert larger.memory("gmem").bytes_per_s == CARD.memory("gmem").bytes_per_s
    assert CARD.replace(name="other").source == "measured"
    assert CARD.replace(n_units=8, source="datasheet").source == "datasheet"


CHIP = Target(
    "chip", "nki", 8, "core",
    memories=(
        Memory("hbm", ("m",), 96 << 30, "device", 2.9e12),
        Memory("sbuf", ("P", "F"), 24 << 20, "core", extents=(128,)),
        Memory("psum", ("P", "F"), 2 << 20, "core", accumulates=True, extents=(128,),
               bank_bytes=2 << 10),
        Memory("reg", ("reg",), 64, "core", kind="private"),
    ),
    levels=(Level("device"), Level("core", 8)),
    instrs=(Instr("matmul.bf16", "gemm", scope="tensor"),
            Instr("dma.copy", "copy", scope="sync", completion="semaphore")),
    links=(Link(128e9, 1e-6, "ring"),),
    engines=(Engine("tensor", 1.4e9), Engine("sync", 1.4e9, queues=16)),
    completions=(Completion("semaphore"),),
)  # fmt: skip


def test_kinds_follow_from_who_shares_a_memory_unless_they_are_said() -> None:
    assert [m.kind for m in CHIP.memories] == ["global", "shared", "shared", "private"]
    assert CHIP.memory("sbuf").place_bytes == 192 << 10
    assert CHIP.memory("hbm").place_bytes == 96 << 30


def test_large_exchanges_go_by_a_second_way_once_it_is_faster() -> None:
    link = Link(2e9, 1e-6, per_message_s=1e-6, bulk=(4e9, 2e-6))
    assert [link.seconds(n, 3) for n in (2000, 4000, 8000)] == pytest.approx([5e-6, 6e-6, 7e-6])


def test_levels_have_extents_which_multiply() -> None:
    assert CHIP.scopes == ("device", "core")
    assert CHIP.most("core", "device") == 8
    assert CHIP.replace(core=2).most("core", "device") == 2
    assert h200.most("thread", "cta") == 1024
    assert h200.most("cta", "device") == 0
    assert h200.replace(thread=64).most("thread", "cta") == 2048


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Memory("m", ("P", "F"), 8, "core", extents=(2, 3)),
            r"extents \(2, 3\) of axes P F",
        ),
        (lambda: Memory("m", ("m",), 8, "core", kind="own"), "kind 'own'; expected one of global"),
        (lambda: CHIP.most("device", "core"), "no level 'device' inside a level 'core'"),
        (lambda: CHIP.replace(engines=()), "row 'matmul.bf16': is issued by 'tensor'"),
        (lambda: CHIP.replace(completions=()), "completes by 'semaphore', no completion of it"),
        (lambda: CHIP.replace(scopes=("device",)), "is given scopes; expected levels"),
        (lambda: CHIP.replace(link_latency_s=1.0), r"link_latency_s; expected links=\(Link\("),
        (lambda: Target("t", "cpu", 1, "core", (), link_bytes_per_s=1.0), "target 't': is given"),  # type: ignore[call-arg]
        (lambda: h200.replace(limits={"threads_per_warp": 32}), r"levels=\(..., Level\('thread'"),
        (lambda: CHIP.replace(tmem=5), "has no field, memory or level 'tmem'"),
    ],
)
def test_a_wrong_machine_is_one_clear_error(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(PackError, match=message):
        make()


def test_a_target_goes_through_pickles_and_through_the_text_of_saved_files() -> None:
    assert pickle.loads(pickle.dumps(CHIP)) == CHIP
    bare = replace(CHIP, instrs=())  # rows are of packs; a file names them
    assert plain.read("target", json.loads(plain.text(bare)), Target) == bare


class Present:
    """A runner whose machine is here."""

    def present(self, target: Target) -> bool:
        return target.family == "nki"


def test_machines_that_others_add_to_a_family_are_no_default() -> None:
    owner = Pack("owner", runners={"nki": Present()})
    owner.target(CHIP)
    other = Pack("other")
    other.target(CHIP.replace(name="alpha"))
    assert find_target(None, [other, owner]) is CHIP
    assert find_target("alpha", [other, owner]).name == "alpha"


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"row_thread": (256,)}, "has no choice 'row_thread'; expected row_threads"),
        ({"row_threads": 256}, "is given row_threads=256; expected a tuple of integers from 1 on"),
        ({"row_threads": ("a",)}, r"is given row_threads=\('a',\); expected a tuple"),
        ({"turn_writing": (0,)}, r"is given turn_writing=\(0,\); expected a tuple"),
    ],
)
def test_choices_that_are_none_are_refused(choices: dict[str, Any], said: str) -> None:
    with pytest.raises(PackError, match=f"target 'h200': {said}"):
        h200.replace(choices={**h200.choices, **choices})


def test_a_machine_may_offer_nothing_and_what_a_pack_asks_for() -> None:
    other = h200.replace(choices={**h200.choices, "product_waves": (), "of_a_pack": (3,)})
    assert other.sizes("of_a_pack") == (3,)
