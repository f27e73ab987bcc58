"""Device functions that exchange registers between the lanes of a warp."""

from __future__ import annotations

MODES = {  # name -> mode of the instruction, what its number is, and where lanes end
    "xor": ("bfly", "mask", 31), "up": ("up", "by", 0), "from": ("idx", "lane", 31),
}  # fmt: skip


def _texts(name: str, device: str) -> dict[str, str]:
    """A value of another lane, by kind of register; `up` gives the first lanes their own."""
    mode, number, last = MODES[name]
    step = f"shfl.sync.{mode}.b32 {{0}}, {{0}}, %1, {last}, 0xffffffff;"
    texts = {}
    for kind, c_type, mark in (("f32", "float", "f"), ("i32", "int", "r")):
        texts[kind] = c_type, f'"{step.format("%0")}" : "+{mark}"(x) : "r"({number})'
    for kind, c_type, mark in (("f64", "double", "d"), ("i64", "long long", "l")):
        lines = [
            '"{ .reg .b32 a, b; mov.b64 {a, b}, %0;"', f'" {step.format("a")}"',
            f'" {step.format("b")} mov.b64 %0, {{a, b}}; }}"',
            f': "+{mark}"(x) : "r"({number})',
        ]  # fmt: skip
        texts[kind] = c_type, "\n               ".join(lines)
    return {
        shuffle_name(name, kind): f"""{device} {c_type} {shuffle_name(name, kind)}({c_type} x, \
int {number}) {{
  asm volatile({text});
  return x;
}}"""
        for kind, (c_type, text) in texts.items()
    }


def shuffle_name(name: str, kind: str) -> str:
    """The function that gives another lane's value of a kind of register."""
    return f"shuffle_{name}" if kind == "f32" else f"shuffle_{name}_{kind}"


def texts(device: str) -> dict[str, str]:
    """All of them by name; `device` is what declares a device function."""
    return {name: text for mode in MODES for name, text in _texts(mode, device).items()}
