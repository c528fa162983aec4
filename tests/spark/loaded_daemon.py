"""Spark's daemon that forks Python workers, with what they need loaded before it forks: a second less for each of them,
and a session has a dozen. Those of test_local_cluster.py, test_submit.py and test_kill.py load it themselves, as users'
do.
"""

# As in a worker, where Spark's part is there before ours: what ours does in workers alone, it does here for them.
import pyspark.worker  # isort: skip  # noqa: F401

import pandas  # noqa: F401
from pyspark.daemon import manager

import catchment.pipeline  # noqa: F401

if __name__ == "__main__":
    manager()
