"""One file for each wire format: how one JSON object becomes tokens, counts and an end."""
