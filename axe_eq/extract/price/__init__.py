"""What kernels cost: cones in figures, and the cheapest schedule and parameters of each."""
