"""CUDA C++ compiled at run time: the time loop as one launch, the weights in one multiprocessor."""
