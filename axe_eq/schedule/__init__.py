"""Schedules: boxes, kernels as cones of tile values, the schedule graph, its memory plan and timeline."""
