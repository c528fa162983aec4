"""A command line of catchment, in a process that has started Spark when it is told, by a line of input, to run it."""

import sys

from given import quick_java

from catchment.cli import main
from catchment.pipeline import spark_session

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": quick_java(),
}

spark_session("local[2]", settings=SETTINGS)
sys.stderr.write("ready\n")
sys.stderr.flush()
sys.stdin.readline()
sys.exit(main(sys.argv[1:]))
