"""Machines as data: memories, scopes, rates, instruction rows; and cost vectors with units."""

from axe_eq.target.machine import Instr, Memory, Target

__all__ = ["Instr", "Memory", "Target"]
