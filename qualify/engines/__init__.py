"""Engines: how each starts, how each is spoken to. One file a protocol."""
