"""Runnable examples; `python -m examples.demo` is the tour."""
