"""NVIDIA GPUs: targets as data, instruction rows, schedules, CUDA C++ emission, launch."""
