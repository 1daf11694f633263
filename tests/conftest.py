"""Where there is no GPU, Triton kernels run in its interpreter. Triton reads this variable when it
is first imported, which any test module may do."""

from __future__ import annotations

import os
from pathlib import Path

if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
