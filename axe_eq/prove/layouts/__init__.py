"""Equality of layouts and of layout expressions: decided by the algebra, or rewritten by laws."""
