"""CUDA C++ compiled at run time: one launch for the whole time loop, with the weights in one multiprocessor."""
