"""Prints the alerts that `catchment match --pairs` wrote: the level of the rule, its title, and the event.

python alerts.py out/subscriptions.jsonl out/alerts
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

subscriptions, alerts = map(Path, sys.argv[1:])
rule_by_id = {rule["id"]: rule for rule in map(json.loads, subscriptions.read_text("utf-8").splitlines())}
for alert in sorted(pq.read_table(alerts / "matched").to_pylist(), key=lambda row: (row["$id"], row["subscription"])):
    rule = rule_by_id[alert["subscription"]]
    print(f"{alert['$id']}  {rule['level']:<8}  {rule['title']}")
