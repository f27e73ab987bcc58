"""Kernels in the kernel language: cells and reductions on tiles, products, streams."""
