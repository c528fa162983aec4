"""Rejects: rows of an input that are not what they should be. A job writes them to a table of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from catchment.cli.terminal import note

if TYPE_CHECKING:
    from pyspark.sql import Observation

    from catchment.pipeline.inputs import Input


def write_rejects(given: Input, path: str, mode: Literal["error", "append"] = "error") -> int:
    """Writes the rejects of an input and returns how many there are. If there are none, it may write nothing."""
    # None means that the reader has not counted them. Then Spark counts while it writes.
    if given.rejected == 0:
        return 0
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812

    counted = Observation()
    given.rejects.observe(counted, F.count(F.lit(1)).alias("rejected")).write.mode(mode).parquet(path)
    return observed(counted)["rejected"]


def observed(observation: Observation) -> dict[str, int]:
    """The counts that Spark made while it wrote. Spark has None instead of 0 for a sum over no rows."""
    return {name: int(count or 0) for name, count in observation.get.items()}


def note_rejects(count: int, expected: str, advice: str) -> None:
    """Says on standard error how many rows were rejected, if any. `advice` says where they are."""
    if count:
        rows = "1 row is" if count == 1 else f"{count:,} rows are"
        note(f"{rows} not {expected}: {advice}")
