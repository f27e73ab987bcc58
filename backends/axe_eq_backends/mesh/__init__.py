"""Transports between processes: what carries the messages of a mesh plan."""
