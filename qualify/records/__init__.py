"""What was observed: the schema, the append-only store, and a run read back."""
