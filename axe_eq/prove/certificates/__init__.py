"""Certificates: what a proof rests on, and the checker that needs no e-graph."""
