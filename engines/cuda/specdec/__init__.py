"""specdec: the bundled engine, a Qwen3.5-type hybrid with target-only and speculative decoding."""

__version__ = "0.1.0"
