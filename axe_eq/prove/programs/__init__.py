"""Equality of programs: decided, proved by laws in an e-graph, or refuted by an input."""
