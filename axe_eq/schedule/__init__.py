"""Schedules: boxes, cones, the schedule graph, its memory plan and timeline."""
