"""The workloads are the reference's, to the last bit."""

import hashlib
import importlib.util
from pathlib import Path

import pytest

from catchment.errors import BadValueError
from catchment.model.filter import Filter
from catchment.sim import benchmark_data

REFERENCE = Path(__file__).parents[3] / "shared" / "workloads.py"
STREAMS = [(name, stream) for name in benchmark_data.WORKLOADS for stream in ("subscriptions", "notifications")]

# Of the first 1,000 items with seed 1, as Python writes them: no stream drifts unseen where there is no reference.
CHECKSUMS = {
    ("W1", "subscriptions"): "5528bc2b063c7eb9",
    ("W1", "notifications"): "8ed952a6bc2fe360",
    ("W2", "subscriptions"): "61dbeca7327790f6",
    ("W2", "notifications"): "6f6f332794ce3681",
    ("W3", "subscriptions"): "192c89604d391ed1",
    ("W3", "notifications"): "5bb1bb348ae8fc90",
}


@pytest.fixture(scope="module")
def reference():
    if not REFERENCE.is_file():
        pytest.skip("the reference generator is not beside this repository")
    spec = importlib.util.spec_from_file_location("reference_workloads", REFERENCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "stream"), STREAMS)
@pytest.mark.parametrize("seed", [1, 7])
def test_streams_are_the_reference(reference, name, stream, seed):
    ours = getattr(benchmark_data, stream)(name, 2_000, seed)
    assert repr(ours) == repr(getattr(reference, stream)(name, 2_000, seed))


@pytest.mark.parametrize(("name", "stream"), STREAMS)
def test_streams_do_not_drift(name, stream):
    text = repr(getattr(benchmark_data, stream)(name, 1_000))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == CHECKSUMS[name, stream]


@pytest.mark.parametrize(("name", "stream"), STREAMS)
def test_sizes_are_prefixes_of_one_stream(name, stream):
    make = getattr(benchmark_data, stream)
    assert make(name, 10) == make(name, 50)[:10]
    assert make(name, 10) != make(name, 10, seed=2)


@pytest.mark.parametrize("name", benchmark_data.WORKLOADS)
def test_filters_are_the_subscriptions(name):
    filters = benchmark_data.filters(name, 20)
    assert filters == [Filter.of(*constraints) for constraints in benchmark_data.subscriptions(name, 20)]
    assert not any(filter.is_empty for filter in filters)


def test_an_unknown_workload_is_refused():
    with pytest.raises(BadValueError, match="W1, W2, W3"):
        benchmark_data.filters("W4", 1)
