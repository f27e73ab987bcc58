"""The colours of pictures, light and dark, as a style sheet of classes.

Tones are hues for few kinds and a ramp for ordered values, all of one lightness per theme so that
text on them is readable: at least 7:1 on light tones and 4.8:1 on dark ones (WCAG contrast). They
were sampled in OKLCH. Classes hold plain colours, not variables, for viewers that know no more.
"""

from __future__ import annotations

HUES = 8
STEPS = 16

_HUES = (
    "#b2dcff #ffcba9 #b5e6be #eec8f7 #e3d9a0 #9be7eb #ffc4c3 #d2d1ff",
    "#1f4a73 #6a3913 #1f542e #5c3764 #534800 #00555a #6e3334 #434073",
)
_RAMP = (
    "#f6f5db #edf3d5 #e2f0d0 #d5eece #c8ebcd #bae9ce #ace6d1 #9fe2d6 "
    "#92dedb #88d9e1 #81d3e7 #7dcced #7ec5f1 #83bdf4 #8ab4f5 #93aaf4",
    "#26223b #262742 #252d48 #23324e #1f3854 #1a3e58 #13445c #094a5e "
    "#00505f #00575f #005d5e #00625c #006859 #176d54 #29714f #397548",
)
# What else a picture is made of: (light, dark).
_PARTS = {
    ".paper": ("fill:#ffffff", "fill:#1d2126"),
    "text": ("fill:#1d2125", "fill:#eef1f4"),
    ".soft": ("fill:#626b76", "fill:#98a2ae"),
    ".cell": ("stroke:#ffffff", "stroke:#1d2126"),
    ".plain": ("fill:#eef0f2", "fill:#2a3038"),
    ".hole": ("fill:url(#axe-hole)", "fill:url(#axe-hole)"),
    ".hatch": ("stroke:#c3c9d0", "stroke:#4a525c"),
    ".differs": ("stroke:#c8102e", "stroke:#ff7b72"),
    ".first": ("stroke:#c8102e", "stroke:#ff7b72"),
    ".clash": ("stroke:#b25e00", "stroke:#ffa657"),
    ".on": ("stroke:#c8102e", "stroke:#ff7b72"),
    ".fine": ("stroke:#62708a", "stroke:#93a1b5"),
    ".bold": ("stroke:#1d2125", "stroke:#eef1f4"),
    ".window": ("stroke:#1d2125", "stroke:#eef1f4"),
}
_SHAPES = (
    ".axe{font:11px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}"
    ".axe .m{text-anchor:middle}.axe .e{text-anchor:end}"
    ".axe .bad{font-weight:700}.axe .cell{stroke-width:1}.axe .mark{fill:none;pointer-events:none}"
    ".axe .hatch{fill:none;stroke-width:1.2}"
    ".axe .differs{stroke-width:1}.axe .clash{stroke-width:1.6}.axe .first{stroke-width:3}"
    ".axe .fine{stroke-width:.6}.axe .bold{stroke-width:1.4}"
    ".axe .window{stroke-width:2.4;stroke-dasharray:4 2}"
    ".axe text{pointer-events:none}"
    ".axe .on{stroke-width:4}"
)


def tones(theme: int) -> dict[str, str]:
    """Class of a tone -> its colour: ``h0`` to ``h7`` and ``r0`` to ``r15``.

    Args:
        theme: 0 for light, 1 for dark.
    """
    found = {f"h{n}": colour for n, colour in enumerate(_HUES[theme].split())}
    return found | {f"r{n}": colour for n, colour in enumerate(_RAMP[theme].split())}


def _classes(theme: int, scope: str) -> str:
    rules = [f"{scope} {part}{{{pair[theme]}}}" for part, pair in _PARTS.items()]
    rules += [f"{scope} .{name}{{fill:{colour}}}" for name, colour in tones(theme).items()]
    return "".join(rules)


def style() -> str:
    """The style sheet of a picture, for a ``<style>`` inside its SVG.

    It follows the reader's system; inside a notebook with a theme of its own it follows that one.
    """
    dark = "[data-jp-theme-light=false] .axe"
    light = "[data-jp-theme-light=true] .axe"
    return (
        f"{_SHAPES}{_classes(0, '.axe')}@media (prefers-color-scheme:dark){{{_classes(1, '.axe')}"
        f"{_classes(0, light)}}}{_classes(1, dark)}"
    )


def ramp(value: int, low: int, high: int) -> str:
    """The tone of a value between the least and the greatest one."""
    if high <= low:
        return "r0"
    return f"r{(value - low) * (STEPS - 1) // (high - low)}"


def hue(number: int) -> str:
    """The tone of the n-th kind; after the last one they begin again."""
    return f"h{number % HUES}"
