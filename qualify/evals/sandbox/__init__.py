"""Where model-written code runs: a fresh, unprivileged sandbox for each program."""
