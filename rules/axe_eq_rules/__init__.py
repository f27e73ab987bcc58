"""Packs of laws that hold on every machine, one file each."""
