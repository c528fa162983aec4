"""Spark's workers collect garbage after every task: with Spark, Arrow, pandas and numba loaded a tenth of a second each
time, which is most of a short task, and finds nothing. So what is there after the first collections is left alone.
"""

from __future__ import annotations

import gc
import sys
from itertools import count
from typing import Any, Final

# Some is loaded only by the first tasks, and collections come by themselves while modules are loaded. What
# is left alone and turns into a cycle of garbage later stays: so there is an end to it.
_TIMES_MAX: Final = 64
_LOADED: Final = 2  # the generation of what is there for long

_times = count()


def leave_loaded_alone() -> None:
    """In a worker; does nothing elsewhere."""
    if "pyspark.worker" in sys.modules and _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, collected: dict[str, Any]) -> None:
    if phase == "stop" and collected["generation"] == _LOADED and next(_times) < _TIMES_MAX:
        gc.freeze()
