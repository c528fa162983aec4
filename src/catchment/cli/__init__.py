"""The command line. Thin: it parses arguments, calls the model, prints; nobody imports it.

Exit codes: 0 ok, 1 failed, 2 bad usage (arguments, a filter that does not parse, a file that is not
there), 130 interrupted, 141 the reader of our output went away (what the shell reports of other tools).
Answers go to standard output and everything else to standard error. Commands import what they need when
they run, so that `catchment --help` is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Final, Literal

from cyclopts import App, CycloptsError, Parameter

from catchment import __version__
from catchment.cli.simulate import simulate
from catchment.cli.terminal import (
    EXIT_BAD_USAGE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    BadUsage,
    complain,
    console,
    prepare_streams,
)
from catchment.errors import CatchmentError

EXIT_PIPE_CLOSED: Final = 141

HELP: Final = """\
Content-based publish/subscribe: state a filter, receive every notification in its catchment, once.

Start with: catchment tour
Then try:   catchment check "symbol = 'DIS' and price > 100"
"""
EPILOGUE: Final = "Exit codes: 0 ok, 1 failed, 2 bad usage."

app = App(
    name="catchment",
    help=HELP,
    help_epilogue=EPILOGUE,
    help_format="plaintext",
    version=__version__,
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)

FILTER_HELP: Final = "The filter, in quotes: \"symbol = 'DIS' and price > 100\"."
COVERS_HELP: Final = "Another filter: say whether either covers the other, and whether they overlap."
AGAINST_HELP: Final = (
    "A file of notifications, one JSON object on each line, or - for standard input: say of each whether "
    "it matches and what failed. A bad line is reported and makes the exit code 1."
)
ON_HELP: Final = (
    "An archive of notifications: say of each day how many would have matched, and which first. Needs Spark."
)
JSON_HELP: Final = (
    "Print JSON: one document, or with --against or --on a line for the report, each verdict or day, and the summary."
)
JsonFlag = Annotated[bool, Parameter(name="--json", help=JSON_HELP, negative="", show_default=False)]


FromFlag = Annotated[str | None, Parameter(name="--from", help="The first time, or day, of the archive.")]
ToFlag = Annotated[str | None, Parameter(name="--to", help="The time, or day, to stop before.")]
Dialect = Annotated[Literal["catchment", "cesql"], Parameter(help="The language of the filter.")]


@app.command
def check(
    filter: Annotated[str, Parameter(help=FILTER_HELP)],
    /,
    *,
    covers: Annotated[str | None, Parameter(help=COVERS_HELP, metavar="OTHER")] = None,
    against: Annotated[str | None, Parameter(help=AGAINST_HELP, metavar="FILE", allow_leading_hyphen=True)] = None,
    on: Annotated[str | None, Parameter(help=ON_HELP, metavar="ARCHIVE")] = None,
    start: FromFlag = None,
    end: ToFlag = None,
    dialect: Dialect = "catchment",
    kind: Annotated[
        Literal["filter", "pattern", "advertisement"], Parameter(name="--as", help="What the text is.")
    ] = "filter",
    json: JsonFlag = False,
) -> int:
    """Check a filter: what it means, what it covers, what it matches.

    Prints its canonical text, whether it can match anything, the attributes it looks at, and its size.
    """
    from catchment.cli.check import run_check

    return run_check(filter, covers, against, on, start, end, dialect, kind, json)


@app.command
def replay(
    archive: Annotated[str, Parameter(help="The directory of the archive.")],
    /,
    *,
    filter: Annotated[str | None, Parameter(help="Only what matches this filter.")] = None,
    start: FromFlag = None,
    end: ToFlag = None,
    output: Annotated[
        str | None, Parameter(name=["--output", "-o"], help="A file to write, instead of standard output.")
    ] = None,
    dialect: Dialect = "catchment",
    master: Annotated[str | None, Parameter(help="The Spark master; local[*] unless told.")] = None,
) -> int:
    """Replay an archive: its notifications in publication order, one JSON object on each line."""
    from catchment.cli.replay import run_replay

    return run_replay(archive, filter, start, end, output, dialect, master)


@app.command
def demo(*, json: JsonFlag = False) -> int:
    """See it work: notifications, subscriptions, who gets what, and why someone does not."""
    from catchment.cli.demo import run_demo

    return run_demo(json)


SUBSCRIPTIONS_HELP: Final = "A file or directory of subscriptions: id, subscriber, filter; broker, dialect, expires."
FORMAT_HELP: Final = "What the files are; unless told, what their names say."
TYPES_HELP: Final = "The attributes and their types, as CSV needs: symbol:string,price:float."
MAP_HELP: Final = "Attributes in one column, a map, not in one each: for names by the thousand."
MasterFlag = Annotated[str | None, Parameter(help="The Spark master; local[*] unless told.")]
OUTPUT_NAMES: Final = ["--output", "-o"]
INDEX_HELP: Final = "The index that catchment compile made."
STREAM_OUTPUT_HELP: Final = "The directory of the result; the same one goes on where it was."
EXPLAIN_HELP: Final = "Why this subscription matched each notification or did not; may be given several times."
PATTERN_HELP: Final = 'The pattern, in quotes: "[a = 1] -> [a = 2] within 5m by host".'
PATTERNS_HELP: Final = 'A file with a pattern on each line, or {"id": …, "pattern": …}.'
DETECT_ON_HELP: Final = "An archive, or a file or directory of notifications."
DETECT_LATE_HELP: Final = "With --stream: how long to wait for what is published earlier; 10m unless told."
ONCE_HELP: Final = "Take the files that are there, and end."
LATE_HELP: Final = "Notifications so much behind the latest one go to a table of their own: 10m."
NotificationFormatFlag = Annotated[
    Literal["json", "cloudevents", "cloudevents-lines", "csv", "parquet"] | None, Parameter(help=FORMAT_HELP)
]


@app.command
def compile(
    subscriptions: Annotated[str | None, Parameter(help=SUBSCRIPTIONS_HELP)] = None,
    /,
    *,
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help="The directory of the index.", metavar="INDEX")],
    format: Annotated[Literal["json", "csv", "parquet"] | None, Parameter(help=FORMAT_HELP)] = None,
    add: Annotated[str | None, Parameter(help="Subscriptions to add to the index.", metavar="FILE")] = None,
    remove: Annotated[str | None, Parameter(help="A column id: what to remove from it.", metavar="FILE")] = None,
    shards: Annotated[int | None, Parameter(help="Into how many parts to split it; unless told, by size.")] = None,
    graph: Annotated[bool, Parameter(help="Make the content graph, the reduction and the summaries too.")] = True,
    master: MasterFlag = None,
    json: JsonFlag = False,
) -> int:
    """Compile subscriptions to an index on Spark, or change one. Bad rows go to a table of rejects."""
    from catchment.cli.compile import run_compile

    return run_compile(subscriptions, output, format, add, remove, shards, graph, master, json)


@app.command
def match(
    notifications: Annotated[str, Parameter(help="A file or directory of notifications.")],
    /,
    *,
    index: Annotated[str, Parameter(help=INDEX_HELP)],
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help="A new directory for the result.", metavar="OUT")],
    format: NotificationFormatFlag = None,
    types: Annotated[str | None, Parameter(help=TYPES_HELP)] = None,
    as_map: Annotated[bool, Parameter(name="--map", help=MAP_HELP, negative="", show_default=False)] = False,
    pairs: Annotated[bool, Parameter(help="A row for each match.", negative="", show_default=False)] = False,
    unmatched: Annotated[bool, Parameter(help="Only what nobody asked for.", negative="", show_default=False)] = False,
    counts: Annotated[
        bool, Parameter(help="How many each subscription matched.", negative="", show_default=False)
    ] = False,
    explain: Annotated[list[str] | None, Parameter(help=EXPLAIN_HELP, metavar="ID", negative="")] = None,
    master: MasterFlag = None,
    json: JsonFlag = False,
) -> int:
    """Match notifications against an index on Spark: each with the ids of the subscriptions that match it."""
    from catchment.cli.match import chosen_kind, run_match

    kind = chosen_kind(pairs, unmatched, counts, bool(explain))
    return run_match(notifications, index, output, format, types, as_map, kind, explain or [], master, json)


@app.command
def stream(
    directory: Annotated[str, Parameter(help="The directory in which files of notifications arrive.")],
    /,
    *,
    index: Annotated[str, Parameter(help=INDEX_HELP)],
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help=STREAM_OUTPUT_HELP, metavar="OUT")],
    format: NotificationFormatFlag = None,
    types: Annotated[str | None, Parameter(help=TYPES_HELP)] = None,
    glob: Annotated[str | None, Parameter(help="Only files with names like this: *.jsonl.")] = None,
    files_max: Annotated[int | None, Parameter(help="So many files in one batch at most; 100 unless told.")] = None,
    checkpoint: Annotated[str | None, Parameter(help="A directory for Spark's state; in OUT unless told.")] = None,
    once: Annotated[
        bool, Parameter(name=["--once", "--available-now"], help=ONCE_HELP, negative="", show_default=False)
    ] = False,
    every: Annotated[str | None, Parameter(help="How often to look for files; 1s unless told.")] = None,
    late: Annotated[str | None, Parameter(help=LATE_HELP, metavar="DURATION")] = None,
    time: Annotated[str | None, Parameter(help="The attribute --late goes by; $time unless told.")] = None,
    master: MasterFlag = None,
    json: JsonFlag = False,
) -> int:
    """Match notifications as files of them arrive, each once whatever happens. Picks up each new index version."""
    from catchment.cli.stream import Streaming, run_stream

    return run_stream(
        Streaming(
            directory, index, output, format, types, glob, files_max, checkpoint, once, every, late, time, master, json
        )
    )


@app.command
def archive(
    notifications: Annotated[str, Parameter(help="A file or directory of notifications.")],
    /,
    *,
    output: Annotated[str, Parameter(name=OUTPUT_NAMES, help="The archive to append to.", metavar="ARCHIVE")],
    format: NotificationFormatFlag = None,
    types: Annotated[str | None, Parameter(help=TYPES_HELP)] = None,
    master: MasterFlag = None,
    json: JsonFlag = False,
) -> int:
    """Append notifications to an archive: Parquet, a directory for each day."""
    from catchment.cli.archive import run_archive

    return run_archive(notifications, output, format, types, master, json)


@app.command
def compact(
    archive: Annotated[str, Parameter(help="The directory of the archive.")],
    /,
    *,
    master: MasterFlag = None,
    json: JsonFlag = False,
) -> int:
    """Join the small files of an archive."""
    from catchment.cli.archive import run_compact

    return run_compact(archive, master, json)


@app.command
def detect(
    pattern: Annotated[str | None, Parameter(help=PATTERN_HELP)] = None,
    /,
    *,
    on: Annotated[str, Parameter(help=DETECT_ON_HELP)],
    file: Annotated[str | None, Parameter(help=PATTERNS_HELP)] = None,
    output: Annotated[str | None, Parameter(name=OUTPUT_NAMES, help="A directory, instead of printing.")] = None,
    format: NotificationFormatFlag = None,
    types: Annotated[str | None, Parameter(help=TYPES_HELP)] = None,
    start: FromFlag = None,
    end: ToFlag = None,
    stream: Annotated[bool, Parameter(help="As files arrive.", negative="", show_default=False)] = False,
    once: Annotated[
        bool, Parameter(name=["--once", "--available-now"], help=ONCE_HELP, negative="", show_default=False)
    ] = False,
    late: Annotated[str | None, Parameter(help=DETECT_LATE_HELP, metavar="DURATION")] = None,
    master: MasterFlag = None,
    json: JsonFlag = False,
) -> int:
    """Find sequences that complete a pattern, in an archive, in files, or as files arrive."""
    from catchment.cli.detect import Detecting, run_detect

    return run_detect(Detecting(pattern, file, on, output, format, types, start, end, stream, once, late, master, json))


@app.command
def warm(*, json: JsonFlag = False) -> int:
    """Make what comes later start sooner, once: compile the kernels, and archive Java's classes for Spark."""
    from catchment.cli.warm import run_warm

    return run_warm(json)


app.command(simulate)


@app.command
def tour(
    *, headless: Annotated[bool, Parameter(help="Play it through and end; fails if it does not come true.")] = False
) -> int:
    """Start three brokers on this machine, and watch: a stream, a near miss, a broker that is killed and returns."""
    from catchment.cli.tour import run_tour

    return run_tour(headless)


UrlFlag = Annotated[str, Parameter(name="--url", help="The broker: host:port. On this machine without it.")]
IdentityFlag = Annotated[str | None, Parameter(name=["--as", "--identity"], help="Who you are, a name of your own.")]
NEIGHBOR_HELP: Final = "A broker to connect to, host:port; may be given again."


@app.command
def serve(
    config: Annotated[str | None, Parameter(help="A TOML file; without one a broker on this machine.")] = None,
    /,
    *,
    name: Annotated[str | None, Parameter(help="Its name, unique in the network.")] = None,
    listen: Annotated[str | None, Parameter(help="Where it listens: host:port.")] = None,
    http: Annotated[str | None, Parameter(help="Where it speaks HTTP: host:port. Without it, it does not.")] = None,
    neighbor: Annotated[list[str] | None, Parameter(help=NEIGHBOR_HELP, negative="")] = None,
    routing: Annotated[str | None, Parameter(help="The routing system: the same in the whole network.")] = None,
    log: Annotated[Literal["human", "json"], Parameter(help="How logs are written, to standard error.")] = "human",
    json: JsonFlag = False,
) -> int:
    """Run a broker until interrupted."""
    from catchment.cli.serve import run_serve

    given = {"name": name, "listen": listen, "http": http, "neighbors": neighbor, "routing": routing}
    return run_serve(config, given, log, json)


@app.command
def pub(
    *attributes: Annotated[str, Parameter(help="name=value; - reads JSON Lines.", allow_leading_hyphen=True)],
    url: UrlFlag = "",
    identity: IdentityFlag = None,
    payload: Annotated[str | None, Parameter(help="Text to send along, not matched on.")] = None,
    advertise: Annotated[str | None, Parameter(help="Advertise this first, where a network asks for it.")] = None,
) -> int:
    """Publish a notification, or those of standard input, one JSON object on each line."""
    from catchment.cli.pubsub import run_pub

    return run_pub(list(attributes), url, identity, payload, advertise)


@app.command
def sub(
    filter: Annotated[str, Parameter(help="A filter or a pattern, in quotes.")],
    /,
    *,
    url: UrlFlag = "",
    identity: IdentityFlag = None,
    dialect: Dialect = "catchment",
    count: Annotated[int | None, Parameter(help="End after so many.")] = None,
    json: JsonFlag = False,
) -> int:
    """Print what is published and matches, as it comes."""
    from catchment.cli.pubsub import run_sub

    return run_sub(filter, url, identity, dialect, count, json)


@app.command(name="advertise")
def advertise_command(
    advertisement: Annotated[str, Parameter(help="What you may publish: \"kind = 'alarm', level any\".")],
    /,
    *,
    url: UrlFlag = "",
    identity: IdentityFlag = None,
) -> int:
    """Hold an advertisement until interrupted."""
    from catchment.cli.pubsub import run_advertise

    return run_advertise(advertisement, url, identity)


@app.command
def explain(
    *attributes: Annotated[str, Parameter(help="name=value of a notification.")],
    url: UrlFlag = "",
    json: JsonFlag = False,
) -> int:
    """Say why the subscriptions at a broker match a notification, or do not."""
    from catchment.cli.pubsub import run_explain

    return run_explain(list(attributes), url, json)


@app.command
def top(
    *,
    url: UrlFlag = "",
    every_s: Annotated[float, Parameter(help="Seconds between looks.")] = 1.0,
    count: Annotated[int | None, Parameter(help="End after so many looks.")] = None,
    json: JsonFlag = False,
) -> int:
    """Watch a broker: its links, clients, subscriptions and rates."""
    from catchment.cli.top import run_top

    return run_top(url, every_s, count, json)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; no input makes it raise."""
    prepare_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _reported(lambda: app(given, console=console()) or 0)
    except BrokenPipeError:
        return _pipe_closed()
    except KeyboardInterrupt:
        return _interrupted()


def _reported(run: Callable[[], int]) -> int:
    """The exit code of a run, each of its failures turned into a message."""
    try:
        code = run()
        sys.stdout.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except CycloptsError as problem:
        return complain(_usage_advice(problem), EXIT_BAD_USAGE)
    except BadUsage as problem:
        return complain(str(problem), EXIT_BAD_USAGE)
    except OSError as problem:
        place = "" if problem.filename is None else f" {problem.filename}"
        return complain(f"cannot read or write{place}: {problem.strerror or problem}", EXIT_FAILED)
    except CatchmentError as problem:
        return complain(str(problem), EXIT_FAILED)
    except Exception as problem:  # a bug of ours: still a message, and the way to see more
        if os.environ.get("CATCHMENT_TRACEBACK"):
            raise
        kind = type(problem).__name__
        return complain(
            f"this is a bug in catchment: {kind}: {problem}\nset CATCHMENT_TRACEBACK=1 to see where", EXIT_FAILED
        )
    return code


def _usage_advice(problem: CycloptsError) -> str:
    from cyclopts import UnusedCliTokensError

    if isinstance(problem, UnusedCliTokensError):
        return f"{problem}\nput a filter in quotes: catchment check \"symbol = 'DIS'\""
    return f"{problem}\ncatchment --help lists what there is"


def _pipe_closed() -> int:
    # Python flushes standard output once more when it ends: let that go nowhere.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE_CLOSED


def _interrupted() -> int:
    complain("interrupted", EXIT_INTERRUPTED)
    return EXIT_INTERRUPTED
