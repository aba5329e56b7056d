"""h_t = phi((I - U T^-1 U') B h_{t-1} + V x_t + b) from U. The derivation of its backward is in README.md."""
