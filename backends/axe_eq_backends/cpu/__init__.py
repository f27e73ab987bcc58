"""The CPU: schedule graphs run step by step in numpy, on flat buffers addressed through layouts."""
