"""What functions of arrays are called elsewhere, by the name that they have here."""

from __future__ import annotations

# Of numpy, with the arguments of the function here.
RENAMED = {
    "absolute": "abs", "power": "pow", "invert": "bitwise_invert", "concatenate": "concat",
    "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift", "amax": "max",
    "amin": "min", "transpose": "permute_dims", "arccos": "acos", "arccosh": "acosh",
    "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan", "arctan2": "atan2",
    "arctanh": "atanh", "cumsum": "cumulative_sum", "cumprod": "cumulative_prod",
}  # fmt: skip

# Of numpy and torch, methods included, with other arguments: a function here does it.
DONE_BY = {
    "bfloat16": "astype", "bmm": "matmul", "bool": "astype", "broadcast": "broadcast_to",
    "cat": "concat", "clamp": "clip", "div": "divide", "dot": "matmul", "double": "astype",
    "eq": "equal", "expand": "broadcast_to", "flatten": "reshape", "fliplr": "flip",
    "flipud": "flip", "float": "astype", "fmod": "remainder", "gather": "take_along_axis",
    "ge": "greater_equal", "gt": "greater", "half": "astype", "hstack": "concat",
    "index_select": "take", "int": "astype", "layer_norm": "layernorm", "le": "less_equal",
    "long": "astype", "lt": "less", "masked_fill": "where", "mm": "matmul", "mod": "remainder",
    "mul": "multiply", "ne": "not_equal", "neg": "negative", "permute": "permute_dims",
    "ravel": "reshape", "repeat_interleave": "repeat", "rms_norm": "rmsnorm",
    "sub": "subtract", "swapaxes": "permute_dims", "swish": "silu", "to": "astype",
    "true_divide": "divide", "type": "astype", "unbind": "unstack", "unsqueeze": "expand_dims",
    "view": "reshape", "vstack": "concat",
}  # fmt: skip

# What no function does.
_SLICES = "slices, as x[:, :3] and x[:, 3:]"
SAID = {
    "chunk": _SLICES, "split": _SLICES, "array_split": _SLICES, "clone": "x: nothing changes it",
    "contiguous": "x: the compiler lays values out", "copy": "x: nothing changes it",
    "detach": "x: nothing is differentiated",
}  # fmt: skip
