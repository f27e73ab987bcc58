"""Machines as data: levels, engines, memories, links, rates, instruction rows."""

from axe_eq.target.machine import Completion, Engine, Instr, Level, Link, Memory, Target

__all__ = ["Completion", "Engine", "Instr", "Level", "Link", "Memory", "Target"]
