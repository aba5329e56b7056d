"""Runs on the disk: their directory, log, lock and checkpoints, how they are resumed, and the signals that end them."""
