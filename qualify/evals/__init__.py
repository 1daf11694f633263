"""Quality evaluations: the same problems in every mode, and what changed between modes."""
