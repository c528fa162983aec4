"""`from catchment.pipeline import match` gives the function, whatever a program imports before or after.

`catchment.pipeline.match` is a package too. Python binds a submodule to its package when it loads the submodule, so in
some order of imports the package could take the place of the function. Each order needs a process of its own.
"""

import pkgutil
import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

FIRST = [
    "from catchment.pipeline import match",
    "import catchment.pipeline",
    "import catchment.pipeline.match",
    "import catchment.pipeline.match.write",
    "from catchment.pipeline.match.jobs import match_counts",
    "from catchment.pipeline.match import parquet_scan, scattered",
    "import catchment.pipeline.archive.dry_run",
    "from catchment.pipeline.stream.jobs import match_stream",
]
CHECK = """
import importlib, pkgutil, types
import catchment.pipeline as pipeline

def check():
    for name in pipeline.__all__:
        assert not isinstance(getattr(pipeline, name), types.ModuleType), f"{name} is a module"

check()
for module in pkgutil.walk_packages(pipeline.__path__, "catchment.pipeline."):
    importlib.import_module(module.name)
    check()
from catchment.pipeline import archive, dry_run, match
from catchment.pipeline.match.jobs import match as same
assert match is same
"""


@pytest.mark.parametrize("first", FIRST)
def test_functions_are_not_replaced_by_packages_of_the_same_name(first):
    done = subprocess.run([sys.executable, "-c", f"{first}\n{CHECK}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_names_collide():
    """Otherwise the test above would show nothing."""
    from catchment import pipeline

    submodules = {module.name for module in pkgutil.walk_packages(pipeline.__path__)}
    assert {"archive", "match"} <= submodules & set(pipeline.__all__)
