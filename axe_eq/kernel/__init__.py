"""The kernel language: primitives on views, plans of instruction calls, and their interpreter."""
