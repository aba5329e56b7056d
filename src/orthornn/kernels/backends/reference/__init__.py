"""The specification: every recurrence as a plain torch loop with an explicit backward. Derivations: the .md files."""
