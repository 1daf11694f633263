"""What the host can tell of memory, power and energy while an engine works."""
