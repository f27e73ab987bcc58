"""The array namespace (Python array API standard) and layers of neural networks, by kind."""
