"""The launch loop: start, measure cell by cell, survive anything."""
