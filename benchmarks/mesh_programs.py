"""Programs on eight devices whose bytes others measured, and what axe_eq moves for them.

Each has the bytes that its best known plan moves (worked out by hand), those of JAX 0.10.2 and of
DTensor (torch 2.13.0): all that crosses links, eight devices together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import axe_eq as axe
import axe_eq.array as xp
from axe_eq import nn
from axe_eq.run.executable import Executable

ROWS, COLUMNS, WHOLE = "P('x',None)", "P(None,'x')", "P(None,None)"
SEQUENCE = "P('x',None,None)"
LINE, GRID = {"x": 8}, {"x": 2, "y": 4}
SQUARE = (1024, 1024)


@dataclass(frozen=True)
class Program:
    """A program, where its arrays begin and end, and bytes.

    Attributes:
        about: in words.
        fn: the function.
        given: per argument shape, cut and dtype.
        wanted: the cut of the output.
        reference: bytes of the plan worked out by hand.
        jax, dtensor: bytes measured; None where there is no figure.
        mesh: its axes.
    """

    about: str
    fn: Callable[..., Any]
    given: tuple[tuple[tuple[int, ...], str, str], ...]
    wanted: str
    reference: int
    jax: int | None
    dtensor: int | None
    mesh: dict[str, int]

    def compiled(self, **more: Any) -> Executable:
        """The program planned for its mesh on `cpu`."""
        mesh = axe.Mesh(self.mesh)

        def cut(shape: tuple[int, ...], how: str) -> Any:
            return axe.read("jax", how, shape=shape, mesh=mesh)

        specs = [axe.Spec(s, d, layout=cut(s, how)) for s, how, d in self.given]
        (root,) = axe.trace(self.fn, *specs).outputs
        return axe.compile(
            self.fn, *specs, target="cpu", mesh=mesh, outputs=[cut(root.shape, self.wanted)], **more
        )


def program(
    about: str, fn: Callable[..., Any], *given: Any, to: str, ref: int, jax: int | None = None,
    dtensor: int | None = None, mesh: dict[str, int] = LINE,
) -> Program:  # fmt: skip
    """A program whose arrays are f32 unless said otherwise."""
    full = tuple((g[0], g[1], g[2] if len(g) > 2 else "f32") for g in given)
    return Program(about, fn, full, to, ref, jax, dtensor, mesh)


def product(x: Any, w: Any) -> Any:
    """A matrix product."""
    return x @ w


def mlp(x: Any, a: Any, b: Any) -> Any:
    """Two products with relu between them."""
    return nn.relu(x @ a) @ b


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention without a mask, dims (sequence, head, depth)."""
    scores = nn.einsum("qhd,khd->hqk", q, k)
    return nn.einsum("hqk,khd->qhd", nn.softmax(scores * 0.125, axis=-1), v)


def convolved(stride: int) -> Callable[[Any, Any], Any]:
    """A convolution of three rows over a length, padded by one on both sides."""

    def fn(x: Any, w: Any) -> Any:
        return nn.conv2d(x, w, stride=(stride, 1), padding=(1, 0))

    return fn


WIDE, TALL = (1024, 4096), (4096, 1024)
HEADS = (1024, 8, 64)
IMAGE = (1, 128, 1024, 1), "P(None,None,'x',None)"
KERNEL = (128, 128, 3, 1), "P(None,None,None,None)"
PROGRAMS: dict[str, Program] = {
    "P01": program("X[x,-] @ W[-,x] to [x,-]", product, (SQUARE, ROWS), (WIDE, COLUMNS), to=ROWS,
                   ref=44040192, jax=117440512, dtensor=135790592),
    "P02": program("X[-,x] @ W[x,-] to [x,-]", product, (SQUARE, COLUMNS), (WIDE, ROWS), to=ROWS,
                   ref=117440512, jax=234881024, dtensor=117440512),
    "P03": program("X[-,x] @ W[x,-] everywhere", product, (SQUARE, COLUMNS), (WIDE, ROWS),
                   to=WHOLE, ref=234881024, jax=234881024, dtensor=234881024),
    "P04": program("A[x,y] @ B[x,y] to [x,y]", product, (SQUARE, "P('x','y')"),
                   (SQUARE, "P('x','y')"), to="P('x','y')", ref=16777216, jax=16777216,
                   dtensor=16777216, mesh=GRID),
    "P05": program("A[x,y] @ B[y,-] to [x,y]", product, (SQUARE, "P('x','y')"),
                   (SQUARE, "P('y',None)"), to="P('x','y')", ref=12582912, jax=25165824,
                   dtensor=12582912, mesh=GRID),
    "P06": program("(A @ B) @ C, inner extent 64", lambda a, b, c: (a @ b) @ c,
                   ((4096, 64), ROWS), ((64, 4096), COLUMNS), ((4096, 64), ROWS), to=ROWS,
                   ref=229376, jax=14680064, dtensor=16515072),
    "P07": program("MLP, sequence cut in and out", mlp, (SQUARE, ROWS), (WIDE, COLUMNS),
                   (TALL, ROWS), to=ROWS, ref=58720256, jax=88080384, dtensor=282591232),
    "P08": program("MLP, whole in and out", mlp, (SQUARE, WHOLE), (WIDE, COLUMNS), (TALL, ROWS),
                   to=WHOLE, ref=58720256, jax=58720256, dtensor=58720256),
    "P09": program("softmax over the cut axis", lambda x: nn.softmax(x, axis=-1), (WIDE, COLUMNS),
                   to=COLUMNS, ref=114688, jax=114688, dtensor=117440512),
    "P10": program("X^T X", lambda x: xp.permute_dims(x, (1, 0)) @ x, ((8192, 512), ROWS), to=ROWS,
                   ref=7340032, jax=14680064),
    "P11": program("transpose", lambda x: xp.permute_dims(x, (1, 0)), ((2048, 2048), ROWS),
                   to=ROWS, ref=14680064, jax=14680064, dtensor=14680064),
    "P12": program("merge of two inner dims", lambda x: xp.reshape(x, SQUARE),
                   ((1024, 64, 16), SEQUENCE), to=COLUMNS, ref=3670016, jax=3670016),
    "P13": program("merge of two outer dims", lambda x: xp.reshape(x, SQUARE),
                   ((16, 64, 1024), "P(None,'x',None)"), to=ROWS, ref=3670016, jax=3670016),
    "P14": program("sum over the cut axis", lambda x: xp.sum(x, axis=0), (WIDE, ROWS), to="P('x')",
                   ref=114688, jax=229376, dtensor=114688),
    "P15": program("flip", lambda x: xp.flip(x, axis=0), (SQUARE, ROWS), to=ROWS, ref=4194304,
                   jax=4194304, dtensor=7340032),
    "P16": program("roll by one", lambda x: xp.roll(x, 1, axis=0), (SQUARE, ROWS), to=ROWS,
                   ref=32768, jax=32768, dtensor=7340032),
    "P17": program("convolution of 3, the length cut", convolved(1),
                   IMAGE, KERNEL,
                   to=IMAGE[1], ref=7168, jax=7168),
    "P18": program("the same in steps of 2", convolved(2), IMAGE, KERNEL, to=IMAGE[1],
                   ref=3584, jax=3584),
    "P19": program("every other row", lambda x: x[::2], (SQUARE, ROWS), to=ROWS, ref=0, jax=0,
                   dtensor=29360128),
    "P20": program("concatenation", lambda a, b: xp.concat([a, b]), (SQUARE, ROWS), (SQUARE, ROWS),
                   to=ROWS, ref=7340032, jax=14680064, dtensor=58720256),
    "P21": program("interleaved rows",
                   lambda a, b: xp.reshape(xp.stack([a, b], axis=1), (2048, 1024)),
                   (SQUARE, ROWS), (SQUARE, ROWS), to=ROWS, ref=0, jax=0),
    "P22": program("prefix sums along the cut axis", lambda x: xp.cumulative_sum(x, axis=0),
                   (SQUARE, ROWS), to=ROWS, ref=229376, jax=29360128, dtensor=29360128),
    "P23": program("embedding, the vocabulary cut", lambda t, i: xp.take(t, i, axis=0),
                   ((32768, 256), ROWS), ((1024,), "P('x')", "i32"), to=ROWS, ref=7340032,
                   jax=14708736),
    "P24": program("attention of 8 heads, sequence cut", attention, (HEADS, SEQUENCE),
                   (HEADS, SEQUENCE), (HEADS, SEQUENCE), to=SEQUENCE, ref=7340032, jax=29360128),
}  # fmt: skip


def block(x: Any, wq: Any, wk: Any, wv: Any, wo: Any, w1: Any, w3: Any, w2: Any) -> Any:
    """A layer of a transformer: attention of 16 heads and a gated MLP, with norms before them."""
    rows, width = x.shape
    heads = (rows, HEADS_OF_STACK, width // HEADS_OF_STACK)
    y = nn.rmsnorm(x)
    q, k, v = (xp.reshape(y @ w, heads) for w in (wq, wk, wv))
    x = x + xp.reshape(attention(q, k, v), (rows, width)) @ wo
    z = nn.rmsnorm(x)
    return x + (nn.silu(z @ w1) * (z @ w3)) @ w2


HEADS_OF_STACK = 16
WEIGHTS = 7  # of a layer


def stack(layers: int, mesh: axe.Mesh, rows: int = 2048, width: int = 1024) -> tuple[Any, Any]:
    """Layers of a transformer as a traced program, and the layout of its output.

    Rows are cut over the first mesh axis, weights over the second: columns first, then rows.
    """
    first, second = list(mesh.shape)[:2]

    def given(shape: tuple[int, int], how: str) -> Any:
        return axe.Spec(shape, "f32", layout=axe.read("jax", how, shape=shape, mesh=mesh))

    across, down, data = f"P(None,'{second}')", f"P('{second}',None)", f"P('{first}',None)"
    inner = 4 * width
    weights = [given((width, width), across)] * 3 + [given((width, width), down)]
    weights += [given((width, inner), across)] * 2 + [given((inner, width), down)]

    def fn(x: Any, *w: Any) -> Any:
        for layer in range(layers):
            x = block(x, *w[WEIGHTS * layer : WEIGHTS * (layer + 1)])
        return x

    x = given((rows, width), data)
    return axe.trace(fn, x, *weights * layers), x.layout
