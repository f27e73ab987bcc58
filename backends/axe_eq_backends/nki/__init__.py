"""AWS Trainium: machines, schedules, NKI kernels, a simulator that is their meaning."""
