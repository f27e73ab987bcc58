"""Why the mutants of kernels that survive are legal, by operator and site."""

from __future__ import annotations

import re
from dataclasses import dataclass

from benchmarks.kernel_mutations import Mutant


@dataclass(frozen=True)
class Reason:
    """An argument, and what it covers.

    Attributes:
        why: the argument.
        operators: whole names of operators, as a regular expression.
        sites: what a site must contain, as a regular expression.
        subjects: whole names of subjects, as a regular expression.
        details: what the detail must contain, as a regular expression.
    """

    why: str
    operators: str
    sites: str = ""
    subjects: str = ".*"
    details: str = ""

    def covers(self, subject: str, mutant: Mutant) -> bool:
        """Whether it is an argument for this mutant."""
        return bool(
            re.fullmatch(self.subjects, subject)
            and re.fullmatch(self.operators, mutant.operator)
            and re.search(self.sites, mutant.site)
            and re.search(self.details, mutant.detail)
        )


SHARED = "split product|rest sharing product"
STREAM, CARRIED = "streaming product", "carried stream"
# Extents that tiles do not divide.
RAGGED = "unaligned product|narrow product|three below product|large tile product"
PRODUCTS = "product of .*"  # through registers, of lanes
GEMMS = ".* product|gated product of columns"
COPIED = "copied product"  # of a tile of slots that threads copy to

REASONS: tuple[Reason, ...] = (
    # -- rows past the end of an operand --
    Reason(
        "Rows past the end only reach results past the end, which no store takes",
        "another constant", "^fill zeros", "narrow product",
    ),
    Reason(
        "All values are the same zero, and the same bytes are written: others would be read"
        " unwritten or race with copies",
        "wrong swizzle|iters swapped|a value one off", r"<- zeros\w*\[", "narrow product",
    ),
    # -- one tile of a cluster, which has one panel --
    Reason(
        "A cluster shares one tile, so nobody waits for the slot of its last step",
        "delete|another barrier|do earlier", r"arrive empty\[previous\]", SHARED,
    ),
    Reason(
        "A cluster shares one tile, so nobody waits for the slot of its last step",
        "do later", "^wait_group wgmma 0", SHARED, "^over one thread: arrive empty",
    ),
    Reason(
        "A CTA stores one panel: none before it has to leave, and nobody has read its memory",
        "delete|one more pending|do earlier|do later",
        r"^(one thread: )?wait_group bulk_read 0|^sync", "split product",
        r"^$|^1$|before (sync|map C)|end of its block|^over (one thread: wait_group|map|sync)",
    ),
    Reason(
        "The sums may lie where operands did, all of which are multiplied when they are put there",
        "overlap|shrink the ring", "^smem (partials|B_ring)", "split product",
    ),
    Reason(
        "Nothing that the producer does is fetched: it may arrive before its copies",
        "do earlier", "^arrive at the cluster's barrier", SHARED, "^over (one thread|for step)",
    ),
    Reason(
        "The slots of a shared tile are given back to nobody: before or after its CTAs meet",
        "do later", r"^one thread: arrive empty\[previous\]", "rest sharing product",
        "^over arrive at the cluster's barrier",
    ),
    Reason(
        "One warpgroup multiplies: nobody else reads the slots that its sums take the place of",
        "do later", "^wait for the cluster", "rest sharing product", "^over copy partials",
    ),
    Reason(
        "It waits earlier for bulk stores to have read their tile: what it moves over works on"
        " registers",
        "do earlier", "^one thread: wait_group bulk_read", "rest sharing product", "^over map part",
    ),
    Reason(
        "An element more of a row meets a zero of the other operand; the last row, which has none,"
        " is of the shared tile",
        "a larger tensor of map", r"copy_async A_ring\[", "rest sharing product",
    ),
    Reason(
        "Whichever tiles are shared, one by a cluster at most, all are computed once",
        "value one off", "^(left|room|whole) :=", "rest sharing product",
    ),
    # -- more order than is needed --
    Reason(
        "What was waited for stays done (a later phase comes after this wait: see the interpreter),"
        " and a barrier or a fence more orders more",
        "do twice", r"^(wait|sync|fence_async|one thread: wait_group|if .* == rank: wait)",
    ),
    Reason(
        "An empty group more makes a wait for all but the last n groups wait for more",
        "do twice", "^commit (bulk|cp_async)",
    ),
    Reason("It waits for more than is needed", "one less pending|wait bulk", "^wait_group"),
    Reason(
        "A slot is given back later than it could be: over work of this warpgroup that waits for"
        " nobody else",
        "do later", r"^one thread: arrive \w*empty", GEMMS,
        r"^over (one thread: wait_group bulk_read|copy|map)",
    ),
    Reason(
        "The slot is given back after a barrier of its own warpgroup, which all of it reaches"
        " without waiting for the slot",
        "do earlier|do later", r"^(sync|one thread: arrive \w*empty)", GEMMS,
        r"^over (one thread: arrive \w*empty|sync)",
    ),
    Reason(
        "It waits earlier for bulk stores to have read their tile, which they do by themselves",
        "do earlier", "^one thread: wait_group bulk_read", GEMMS,
        r"^over (one thread: arrive \w*empty|copy R_)",
    ),
    Reason(
        "It waits earlier for a tile that the producer loads without what this moves over",
        "do earlier", r"^wait values_full\[", STREAM, "^over (gemm scores|map weights)",
    ),
    Reason(
        "Waits in a row: what needs one of them comes after all of them",
        "do earlier|do later", r"^(wait (left|right)_full\[|wait_group wgmma 0)", STREAM,
        r"^over (wait (left|right)_full\[|wait_group wgmma 0)",
    ),
    Reason(
        "A slot has two barriers that say when it is free: both are told, and both are waited for,"
        " before anything else",
        "do earlier|do later", r"^(arrive (free|empty)|wait empty|if stage % 2 == rank: wait)",
        "turn taking product", r"^over (arrive (free|empty)|wait empty|if stage % 2 == rank: wait)",
    ),
    # -- as much order, in another place --
    Reason(
        "At the end of a kernel only its shared memory must be free: what is on its way to global"
        " memory arrives before the next kernel begins",
        "wait bulk_read", "^wait_group bulk 0",
    ),
    Reason(
        "A fence after the barrier, which told of all writes, stands on the same path from them to"
        " what reads them through the async proxy",
        "do later", "^fence_async", details="^over sync",
    ),
    Reason(
        "The barrier before the fence instead of after it: see the fence after the barrier",
        "do earlier", "^sync", details="^over fence_async",
    ),
    Reason(
        "The barrier still stands between the wait for the staging tile's readers and the writes"
        " to it: what it moves over works on registers",
        "do later", "^sync", GEMMS, "^over (map C_|copy R_)",
    ),
    Reason(
        "The barrier still stands between the writes to the shared tiles and the reads of them:"
        " what it moves over reads global tensors into registers",
        "do later", "^sync", PRODUCTS, r"^over if step \+ 1 <",
    ),
    Reason(
        "It orders products and the shared tile: what it moves over reads a global tensor into"
        " registers that neither touches",
        "do earlier", r"^(fence_async|wait_group wgmma 0)", GEMMS, "^over copy R_",
    ),
    Reason(
        "A product is one operation of its warpgroup, and the wait for it tells every warp that its"
        " operands were read: a barrier beside it orders no more",
        "delete|do earlier|do later", "^(sync|wait_group wgmma 0)", CARRIED,
        "^(at the end of its block|over wait_group wgmma 0|over sync)",
    ),
    Reason(
        "The phase cannot complete before this arrival, wherever it stands between the copies:"
        " bytes that arrive early are counted",
        "do later", "^arrive .* expecting", details="^over copy_async",
    ),
    Reason(
        "Bytes are announced before the slot is free, and sent after: the phase cannot complete"
        " without them, and the phase before is known to be over from the slots of the other ring,"
        " which consumers gave back later",
        "do later|do earlier", "^(wait left_empty|arrive left_full)", STREAM,
        "^over (arrive left_full.* expecting|wait left_empty)",
    ),
    Reason(
        "The scores' slot is given back before its product is waited for; the producer fills it"
        " after the next slot of values, for which it waits until every consumer has waited for"
        " all products up to this one",
        "do earlier|do later", "^(one thread: arrive right_empty|wait_group wgmma 1)", STREAM,
        "^over (one thread: arrive right_empty|wait_group wgmma 1)",
    ),
    Reason(
        "What it moves over changes integers that it does not use",
        "do earlier",
        r"^(wait values_empty\[stage_2\]|wait_group wgmma 0|one thread: arrive turn)", STREAM,
        r"^over if (stage_1 == 2|stage_3 == 1|stage_5 == 2):",
    ),
    # -- turns of consumers, which order work in time, and no data --
    Reason(
        "The turn is taken or handed over a little earlier or later",
        "do earlier|do later", r"^(one thread: arrive|wait) turn\[|^wait_group wgmma 1", STREAM,
        r"^over (wait_group wgmma 1|map weights|one thread: arrive turn)",
    ),
    Reason("The other consumer begins",
        "the other phase|do later|value one off", r"^(wait turn\[|turn_parity := )", STREAM,
        r"^(turn_parity \^ 1|over turn_parity = turn_parity \^ 1|wg_1 == 1)$",
    ),
    Reason("One thread of a consumer waits for its turn, and phases stay counted",
        "by one thread", r"^wait turn\[", STREAM,
    ),
    # -- conditions and bounds --
    Reason(
        "All CTAs of a cluster know the row's value: others than the first may store it",
        "condition one off", r"^if rank == 0:", "swept rows of a cluster",
    ),
    Reason("A ring of one slot wraps at every step", "always", r"^if stage(_3)? == 1:", STREAM),
    Reason(
        "CTAs loop over tiles with the grid's size as step: a grid of any size covers them",
        r"tiles [+-]1", "^grid$",
    ),
    Reason(
        "A tile past the last one is outside everywhere: what it loads is filled, and what it"
        " stores is masked",
        "stop one off", r"^for tile in range\(", f"{CARRIED}|short rows|swept .*",
    ),
    Reason(
        "A chunk past the last one is outside everywhere: it is masked before it merges with the"
        " others, and stored nowhere",
        "stop one off", r"^for chunk(_1)? in range\(0, 3, 1\)", "swept .*", "^4$",
    ),
    Reason(
        "The last step reads its tile once more, into registers that nobody reads after it",
        "always|condition one off", r"^if step \+ 1 < 3:$", PRODUCTS,
        r"^(|1|\(step \+ 1 < 3\) \+ 1)$",
    ),
    Reason(
        "A step past the last one adds nothing: there a factor is masked everywhere",
        "stop one off", r"^for step in range\(0, 3, 1\)", PRODUCTS, "^4$",
    ),
    # -- values that do not count --
    Reason(
        "What is there before the first chunk is rescaled by the power of minus infinity: to zero",
        "another constant", r"^fill (mixed|total|running2)\[", f"{CARRIED}|swept (odd )?rows.*",
    ),
    Reason(
        "Before the first chunk the sum is zero, rescaled or not",
        "delete( the call)?", r"^(map 0 of )?map running2\[.*<- running1\[.*, top\[",
        "swept odd rows",
    ),
    Reason(
        "Rows and columns outside are stored nowhere",
        "another fill", r"^copy (R|s)(_\d)?\[", f"{GEMMS}|{CARRIED}",
    ),
    Reason(
        "Depths outside meet zeros that fill the other factor: any finite value does",
        "another constant", r"^map factor_m_staged\[", PRODUCTS,
        r"^where\(lt\(x1, \d+\), rsqrt\(x0\), 1\.0\)$",
    ),
    Reason(
        "What is outside is stored nowhere",
        "another fill", r"^copy (held|(x|y|a|b|w|bias)_[12])\[",
        f"{PRODUCTS}|{COPIED}|short rows|cells.*|transpose by .*|halves .*|merging rows",
    ),
    Reason(
        "Depths outside meet the zeros that fill the other operand; rows and columns outside are"
        " masked before they weigh anything, or stored nowhere",
        "another fill", r"^copy (Q|K)_1\[", CARRIED,
    ),
    Reason(
        "Positions outside have no weight, and columns outside are stored nowhere",
        "another fill", r"^copy V_1\[", CARRIED,
    ),
    Reason(
        "Depths outside are masked in the factor A, and are zero in what B meets; rows and columns"
        " outside are stored nowhere",
        "another fill", r"^copy (A|B)_1\[", PRODUCTS,
    ),
    Reason(
        "What is outside is masked before it is reduced, and stored nowhere",
        "another fill", r"^copy [xr]_[1-6]\[", "(odd )?rows|swept .*",
    ),
    # -- factors that threads copy, several steps ahead --
    Reason(
        "Copies are closed into a later group, or after reads of fragments: waits are for more",
        "do later", "^commit cp_async", COPIED, "^over copy",
    ),
    Reason(
        "It waits earlier for what the next step multiplies",
        "do earlier", "^wait_group cp_async", COPIED, "^over gemm acc",
    ),
    Reason(
        "Columns past the end only reach results past the end, which no store takes",
        "one off of guard|without of guard", r"copy_async B_shared\[", COPIED,
        r"^n_at\w* \+|None",
    ),
    Reason(
        "An element more of a row meets a zero of the other operand; the last row, which has none,"
        " is of another copy",
        "one off of guard", r"copy_async A_shared\[", COPIED, r"depth .* < 76\)",
    ),
    Reason(
        "The last step reads fragments that nothing multiplies",
        "value one off", "^following :=", COPIED,
    ),
    # -- last tiles, which are copied whole until every slot holds values --
    Reason(
        "They are copied whole for ever: what is past an end is filled, and only slower",
        "delete|value one off", r"^filled = min\(filled \+ 1, 2\)", RAGGED,
    ),
    Reason(
        "Nobody has used the slots of the first round, which alone are filled there",
        "do later", r"^wait empty\[stage\]", RAGGED, r"^over if filled < 2:",
    ),
    Reason(
        "The first round announces bytes of both slots, each once, and each as many",
        "the next slot", r"^arrive full\[stage\] expecting (16384|9216|7424|14336)", RAGGED,
    ),
    Reason(
        "No CTA of these grids begins with a tile of that kind: all slots hold values before one",
        "always", "^if filled > 1:", RAGGED,
    ),
    Reason(
        "An element more of a row meets a zero of the other operand; the last row, which has none,"
        " is of another copy",
        "a larger tensor of map", r"copy_async [AB]_ring\[", RAGGED,
    ),
    Reason(
        "Nobody reads the last words of what it then lies over: lanes that hold the same values"
        " read the first of them",
        "overlap", "^smem scratch_1", "swept columns",
    ),
)  # fmt: skip


def argued(subject: str, mutant: Mutant) -> str:
    """The argument for a survivor; "" where there is none."""
    return next((r.why for r in REASONS if r.covers(subject, mutant)), "")
