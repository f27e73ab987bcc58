"""Extraction: the only place that chooses. Technology mapping over place and tile classes."""
