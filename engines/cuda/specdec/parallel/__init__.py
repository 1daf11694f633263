"""Tensor parallelism: one model over several ranks, with the bytes of one."""
