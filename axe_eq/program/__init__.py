"""Programs: operators, signatures, tracing, numpy meaning, the array namespace."""
