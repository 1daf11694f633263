"""From records to findings."""
