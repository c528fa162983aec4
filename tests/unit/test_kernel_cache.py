"""The cache of compiled kernels on disk, which processes share."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catchment.matching.kernels.single import MATCH_SINGLE_TYPES, match_single
from tests.unit.matchers import many

PROCESSES, SAVES = 2, 60
COMPILED: Any = match_single
needs_compiling = pytest.mark.skipif(not hasattr(COMPILED, "signatures"), reason="NUMBA_DISABLE_JIT is set")

# Saves one compiled kernel under many signatures, all of its own, as fast as it can.
SAVER = """
import sys
import numpy
from numba import types
from catchment.matching.kernels.bytes import float_key

float_key(numpy.zeros(8, numpy.uint8), 0)
(compiled,) = float_key.overloads.values()
sys.stdin.readline()
for number in range(int(sys.argv[2])):
    float_key._cache.save_overload((types.UniTuple(types.int64, int(sys.argv[1]) * 1000 + number),), compiled)
"""
READER = """
from catchment.matching.kernels.bytes import float_key

files = float_key._cache._cache_file._load_index().values()
print(len(files), len(set(files)))
"""


@needs_compiling
def test_processes_that_save_at_the_same_time_share_no_file(tmp_path: Path) -> None:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    savers = [
        subprocess.Popen(
            [sys.executable, "-c", SAVER, str(number), str(SAVES)], stdin=subprocess.PIPE, text=True, env=environment
        )
        for number in range(1, PROCESSES + 1)
    ]
    for saver in savers:
        assert saver.stdin is not None
        saver.stdin.write("go\n")
        saver.stdin.flush()
    for saver in savers:
        saver.communicate()
    assert [saver.returncode for saver in savers] == [0] * PROCESSES
    counts = subprocess.run([sys.executable, "-c", READER], check=True, capture_output=True, text=True, env=environment)
    entries, files = map(int, counts.stdout.split())
    assert entries == files == PROCESSES * SAVES + 1


@needs_compiling
def test_match_single_is_compiled_early_for_the_types_that_a_matcher_calls_it_with() -> None:
    assert many(100).match({"x": 1}) == ["s001"]
    assert list(COMPILED.signatures) == [MATCH_SINGLE_TYPES]
