"""One Spark session for all tests of this directory, small enough for a shared machine."""

import pytest

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # For runs this short, Java's second compiler costs more than it gains.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@pytest.fixture(scope="session")
def spark():
    from catchment.pipeline.session import spark_session

    session = spark_session("local[2]", name="tests", settings=SETTINGS)
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
