"""Extraction on a mesh: cuts of operators over devices, chosen with the exchanges they imply."""
