"""Triton kernels: the time loop as one launch. Only tiles.py and the kernels' files import triton, which costs a second."""
