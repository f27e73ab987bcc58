"""The choice: what is materialised, by which kernels, until all of them are built."""
