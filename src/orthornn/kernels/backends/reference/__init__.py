"""The specification: every recurrence as a plain loop in torch, its backward written out. Derivations: the .md files."""
