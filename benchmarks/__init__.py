"""Benchmarks: one command each, JSON with machine, versions and spread in results/."""
