"""Tests that packs get without writing them: laws, operators and kernels on drawn samples."""
