"""What the tests share: oracles, tolerances, made data, emulations."""
