"""What all tests share: how hard Hypothesis looks, and what is skipped where Java is missing.

The Hypothesis profile is chosen by the environment variable HYPOTHESIS_PROFILE; `ci` unless told.

    check   few examples, for `./dev check`
    ci      the same examples every time, so that a red run is a change of ours
    soak    many, and new ones each time, to hunt with
"""

import functools
import os
import re
import subprocess

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("check", max_examples=20, derandomize=True, deadline=None)
settings.register_profile("ci", max_examples=100, derandomize=True, deadline=None)
settings.register_profile(
    "soak",
    max_examples=10_000,
    derandomize=False,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

JAVA_VERSION_MIN = 17


@functools.cache
def java_version() -> int:
    """The major version of the Java that Spark would start; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError:
        return 0
    version = re.search(r'version "(\d+)', said)
    return int(version[1]) if version else 0


def pytest_runtest_setup(item):
    if item.get_closest_marker("spark") and java_version() < JAVA_VERSION_MIN:
        pytest.skip(f"Spark needs Java {JAVA_VERSION_MIN} or newer on the PATH or in JAVA_HOME")
