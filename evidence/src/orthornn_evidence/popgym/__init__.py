"""POPGym (Morad et al., 2023): agents that remember, next to gated networks of equal size."""
