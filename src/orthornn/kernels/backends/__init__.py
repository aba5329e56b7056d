"""The backends: each runs a whole `Call`, forward and backward, and reports what it cannot run.

name         runs on     what it is
cpp          CPU         compiled kernels (csrc/), all parameter gradients included
cuda         CUDA        CUDA C++ compiled at run time, float32: weights in one multiprocessor, or W in a cluster of them;
                         rotations of any size
graph        CUDA        the reference's loop of matrix products as a CUDA graph, any size and precision
reference    any device  the specification: plain torch, a loop over steps
"""

from .cpp.backend import CPP
from .cuda.backend import CUDA
from .cuda_graph import GRAPH
from .protocol import Backend
from .reference.backend import REFERENCE

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (CPP, CUDA, GRAPH, REFERENCE)}

__all__ = ["BACKENDS", "CPP", "CUDA", "GRAPH", "REFERENCE", "Backend"]
