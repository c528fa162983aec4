"""A command line of catchment, in a process that starts Spark first, and runs the command when it reads a line."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from catchment.cli import main
from catchment.pipeline import spark_session
from tests.spark.samples import quick_java

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": quick_java(),
}

spark_session("local[2]", settings=SETTINGS)
sys.stderr.write("ready\n")
sys.stderr.flush()
sys.stdin.readline()
sys.exit(main(sys.argv[1:]))
