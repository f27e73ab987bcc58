"""Kernels as formulas: what a cone computes, read once for prices and for kernels."""
