"""The compiled kernels of csrc/."""
