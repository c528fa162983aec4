"""The program that test_submit.py submits: a job, and then a command line in the same session.

Argument: a directory. It writes the results there, to `results.json`.
"""

import json
import sys
from pathlib import Path

from catchment.cli import main
from catchment.pipeline import match, read_notifications, spark_session

root = Path(sys.argv[1])
spark = spark_session()
rows = match(read_notifications(spark, str(root / "in")).rows, root / "index").select("`$id`", "subscriptions")
results = {
    "master": spark.sparkContext.master,
    "name": spark.sparkContext.appName,
    "time zone": spark.conf.get("spark.sql.session.timeZone"),
    "case": spark.conf.get("spark.sql.caseSensitive"),
    "match": {row["$id"]: row.subscriptions for row in rows.collect()},
    "command": main(["match", str(root / "in"), "--index", str(root / "index"), "-o", str(root / "out"), "--counts"]),
}
(root / "results.json").write_text(json.dumps(results))
