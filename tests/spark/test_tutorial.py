"""The data of the tutorial give the numbers that the tutorial shows."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.spark
MARKET = Path(__file__).resolve().parents[2] / "examples" / "market"


def test_the_market_of_the_tutorial(spark, tmp_path: Path):
    from catchment.pipeline import compile_subscriptions, match, read_notifications, read_subscriptions

    given = read_subscriptions(spark, str(MARKET / "subscriptions.jsonl"))
    index = compile_subscriptions(given.rows, tmp_path / "index", rejects=given.rejects)
    counts = index.counts
    assert (counts["live"], counts["contradictory"], counts["expired"], counts["rejected"]) == (120, 1, 1, 1)
    trades = read_notifications(spark, str(MARKET / "notifications.jsonl"))
    assert (trades.rows.count(), trades.rejects.count()) == (400, 1)
    assert match(trades.rows, index).where("size(subscriptions) > 0").count() > 50
    assert spark.read.parquet(index.filters).count() == counts["filters"]
