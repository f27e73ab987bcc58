"""The layout value: iters on axes, replicas, offset, swizzle, box; a shape's grouping of it."""
