"""Keeps Python's garbage collector away from what a Spark worker has loaded.

Spark's Python workers collect garbage after every task. With Spark, Arrow, pandas and numba loaded, each collection
takes a tenth of a second, which is most of a short task, and it frees nothing. So a worker freezes its objects after
its first collections: the collector does not look at them again.
"""

from __future__ import annotations

import gc
import sys
from itertools import count
from typing import Any, Final

# The first tasks still load modules, and loading triggers collections of its own: one freeze is not enough. A frozen
# object that becomes part of a garbage cycle is never freed, so the number of freezes is bounded.
_FREEZES_MAX: Final = 64
_OLDEST_GENERATION: Final = 2

_freezes = count()


def freeze_loaded_objects() -> None:
    """Freezes the objects of a Spark worker after its first collections; does nothing in any other process."""
    if "pyspark.worker" in sys.modules and _freeze not in gc.callbacks:
        gc.callbacks.append(_freeze)


def _freeze(phase: str, collection: dict[str, Any]) -> None:
    if phase == "stop" and collection["generation"] == _OLDEST_GENERATION and next(_freezes) < _FREEZES_MAX:
        gc.freeze()
