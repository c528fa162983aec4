"""One Spark session for all tests of this directory, small enough for a shared machine."""

import pytest

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}
# Each of these takes a minute or more.
LONGEST = {"test_kill.py", "test_connect.py", "test_local_cluster.py"}


def pytest_collection_modifyitems(items):
    """Runs the longest tests first: of two processes that run tests, none then waits at the end for the other's long
    one."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def spark():
    from catchment.pipeline.session import spark_session
    from tests.spark.samples import loaded_workers, quick_java

    java = {"spark.driver.extraJavaOptions": quick_java()}
    session = spark_session("local[2]", name="tests", settings=SETTINGS | java | loaded_workers())
    yield session
    session.stop()


@pytest.fixture
def run(spark, capsys):
    """Runs a command line in this process and its session: exit code, standard output, standard error."""
    from catchment.cli import main

    def run_command(*arguments):
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "a bug in catchment" not in printed.err
        return code, printed.out, printed.err

    return run_command
