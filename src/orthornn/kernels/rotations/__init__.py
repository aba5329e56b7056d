"""h_t = R h_{t-1} + x_t with R of 2x2 rotations: a linear network in its own basis. The derivation is in README.md."""
