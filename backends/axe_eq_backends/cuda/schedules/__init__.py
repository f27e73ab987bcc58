"""Schedules of CUDA kernels in the kernel language, over any cells, tiles and orders."""
