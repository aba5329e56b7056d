"""Orthogonal and unitary recurrent networks for PyTorch."""
