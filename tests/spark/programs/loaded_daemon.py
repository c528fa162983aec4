"""Spark's daemon that forks Python workers, with the modules loaded that workers need: that spares each worker a
second, and a session starts a dozen of them. The workers of test_local_cluster.py, test_submit.py and test_kill.py load
these modules themselves, as those of users do.
"""

# Before catchment.pipeline, as in a worker: what that does only in a worker, it does here for all of them.
import pyspark.worker  # isort: skip  # noqa: F401

import pandas  # noqa: F401
from pyspark.daemon import manager

import catchment.pipeline  # noqa: F401

if __name__ == "__main__":
    manager()
