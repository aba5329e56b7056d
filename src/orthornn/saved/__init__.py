"""Trained networks as files: what a run directory holds, and how a network is read from it."""
