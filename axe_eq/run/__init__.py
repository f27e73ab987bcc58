"""Executables: compiled programs that run, explain themselves, save and load."""
