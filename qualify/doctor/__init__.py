"""Is this machine ready to measure, and is anything left running? Facts, each with a cure."""
