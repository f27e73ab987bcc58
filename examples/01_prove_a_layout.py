"""Are two layouts the same? Proved with a certificate, or refuted with the element that differs.

A layout maps a logical index to coordinates on named axes. Other systems' notations are read into
the same maps, so a question may mix them.
"""

from __future__ import annotations

import axe_eq as axe

# A 1024 x 512 array in XLA's tiles of 8 x 128, as CuTe would write it, and in axe's own notation.
XLA = "xla:f32[1024,512]{1,0:T(8,128)}"
CUTE = "cute:((128,4),(8,128)):((1,1024),(128,4096))"
AXE = "S[(128,8,4,128):(4096@m,128@m,1024@m,1@m)]"
SWAPPED = "S[(128,8,4,128):(4096@m,128@m,1@m,1024@m)]"


def main() -> None:
    """Prove two pairs, refute one, look at a layout that is not a permutation."""
    for other in (CUTE, AXE):
        verdict = axe.equivalent(XLA, other)
        assert isinstance(verdict, axe.Proved)
        # The certificate is checked without any search: what it lists must be instances of laws.
        assert axe.check_certificate(verdict.certificate)
        print(f"{XLA} = {other}: {type(verdict).__name__}")

    verdict = axe.equivalent(XLA, SWAPPED)
    assert isinstance(verdict, axe.Refuted)
    print(f"{XLA} = {SWAPPED}: refuted, {verdict.counterexample}")

    # A tensor core's accumulator: warps, lanes and registers are axes like memory is one.
    tile = axe.Layout.parse("S[(2,8,4,2):(1@warp,4@lane,1@lane,1@reg)]")
    print(f"element 37 of {tile} lies in {sorted(*tile(37))}")
    both = axe.equivalent(tile, "S[(2,32,2):(1@warp,1@lane,1@reg)]")
    assert both
    print(f"its lanes join: {both}")


if __name__ == "__main__":
    main()
