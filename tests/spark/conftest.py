"""One Spark session for all tests of this directory, small enough for a shared machine."""

import pytest

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
# A minute and more each.
LONGEST = {"test_kill.py", "test_connect.py", "test_local_cluster.py"}


def pytest_collection_modifyitems(items):
    """The longest first: with two processes that run tests, none waits at the end for one that the other has begun."""
    items.sort(key=lambda one: one.path.name not in LONGEST)


@pytest.fixture(scope="session")
def spark():
    from catchment.pipeline.session import spark_session
    from tests.spark.given import loaded_workers, quick_java

    java = {"spark.driver.extraJavaOptions": quick_java()}
    session = spark_session("local[2]", name="tests", settings=SETTINGS | java | loaded_workers())
    yield session
    session.stop()


@pytest.fixture
def run(spark, capsys):
    """Runs a command line in this process and its session: exit code, output, complaints."""
    from catchment.cli import main

    def runs(*arguments):
        code = main([str(one) for one in arguments])
        found = capsys.readouterr()
        assert "a bug in catchment" not in found.err
        return code, found.out, found.err

    return runs
