"""Results of the default for tables on many sets, next to other networks and to plain methods."""
