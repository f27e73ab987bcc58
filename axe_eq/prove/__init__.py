"""Verdicts on equality: refutation, proof, certificates."""
