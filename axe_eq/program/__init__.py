"""Programs: operators, signatures, tracing, numpy meaning, the array namespace."""

from axe_eq.program import standard as standard  # declares the standard operators
