"""Machines: one folder per family, with its data, instructions, schedules and emitter."""
