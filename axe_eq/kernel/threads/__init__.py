"""Kernels on threads: warps, roles, barriers, registers; the model of GPUs of every family."""
