"""h_t = phi(W h_{t-1} + V x_t + b) with W given as a matrix. The derivation of its backward is in README.md."""
