"""Durable delivery under load, beside RabbitMQ (durable queue, persistent messages, confirms) and NATS JetStream (file
storage).

    ./dev bench durable              the whole table, some ten minutes
    ./dev bench durable --quick      fewer notifications
    ./dev bench durable --only Catchment

Bodies have 1 KB. Catchment syncs each record twice before it confirms it. JetStream by default confirms first, and
syncs every two minutes. RabbitMQ syncs some milliseconds later, and confirms then. Debian's rabbitmq-server and
nats-server are started by this; what is not installed is left out and said. Clients are in Python for all, publisher
and subscribers in processes of their own.

stored/s    from the first publication to the last delivery, with 256 and with 1 publication unconfirmed
p50, p99    from publication to delivery, at half of that rate
away        a subscriber comes when 100,000 wait for it: until it has the last
transient   notifications/s that nobody keeps, at a broker without a store, with one, and with one that has durable
            traffic beside it
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.broker_load import Load
from benchmarks.broker_load import receive as receive_transient
from benchmarks.broker_load import send as send_transient
from benchmarks.durable_load import SUBSCRIBE, DurableLoad, publish, receive, run

RESULTS = Path(__file__).parent / "results" / "durable.md"
# A peer, and the kind of clients that it has.
PEERS = {
    "Catchment": "Catchment",
    "RabbitMQ": "RabbitMQ",
    "JetStream": "JetStream",
    "JetStream, sync always": "JetStream",
}
WAIT_S = 240
STOP_S = 5
Row = tuple[str, ...]


# --- brokers ------------------------------------------------------------------------------------


def free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(peer: str, directory: Path, has_store: bool = True) -> Iterator[str]:
    """A broker started anew, with nothing on its disk; its address."""
    home = Path(tempfile.mkdtemp(dir=directory))
    process: subprocess.Popen[Any]
    if peer == "Catchment":
        command = [sys.executable, "-m", "catchment", "serve", "--listen", "127.0.0.1:0", "--json"]
        command += ["--store", str(home / "store.db")] if has_store else []
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["address"]
    else:
        port = free_port()
        process, address = _peer(peer, port, home), f"127.0.0.1:{port}"
        _listening(port)
    try:
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(home, ignore_errors=True)


def _peer(peer: str, port: int, home: Path) -> subprocess.Popen[Any]:
    environment = dict(os.environ)
    if peer == "RabbitMQ":
        command = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
        environment |= {
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(home),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            "HOME": str(home),
        }
    else:
        config = home / "nats.conf"
        sync = "sync_interval: always" if "always" in peer else ""
        config.write_text(f"listen: 127.0.0.1:{port}\njetstream {{ store_dir: {json.dumps(str(home))}\n{sync} }}\n")
        command = ["nats-server", "-c", str(config)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _listening(port: int) -> None:
    import socket

    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(2)  # RabbitMQ listens a little before it serves
                return
        time.sleep(0.2)
    raise SystemExit(f"nothing listens at {port}")


def why_not(peer: str) -> str:
    """Why a peer cannot be measured; empty if it can."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    programs = {"RabbitMQ": "rabbitmq-server", "JetStream": "nats-server"}
    program = programs.get(PEERS[peer])
    if program is None:
        return ""
    if (found := shutil.which(program, path=path)) is None:
        return f"{program} is not installed"
    if "always" not in peer:
        return ""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "nats.conf"
        config.write_text(f"jetstream {{ store_dir: {json.dumps(directory)}\nsync_interval: always }}\n")
        tried = subprocess.run([found, "-t", "-c", str(config)], capture_output=True, text=True, check=False)
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    return "" if tried.returncode == 0 else f"{version} has no setting to sync each write"


# --- measuring ----------------------------------------------------------------------------------


def measured(peer: str, load: DurableLoad, directory: Path, is_away: bool = False) -> tuple[float, list[float]]:
    """Stored and delivered notifications a second, and how long each took. With `is_away` the subscriber comes when all
    is published; then the time is its own."""
    kind = PEERS[peer]
    context = multiprocessing.get_context("spawn")
    with running(peer, directory) as address:
        _in_process(context, _subscribe, kind, address, load)
        ready, go = context.Event(), context.Event()
        sent, received = context.Queue(), context.Queue()
        reader = context.Process(target=receive, args=(kind, address, load, ready, received), daemon=True)
        writer = context.Process(target=publish, args=(kind, address, load, go, sent), daemon=True)
        writer.start()
        try:
            if is_away:
                go.set()
                sent.get(timeout=WAIT_S)
                began = time.time()
                reader.start()
            else:
                reader.start()
                assert ready.wait(WAIT_S), f"{peer}: the subscribers are not ready"
                time.sleep(0.5)
                go.set()
                began = sent.get(timeout=WAIT_S)[0]
            first, last, latencies = received.get(timeout=WAIT_S)
        finally:
            for process in (reader, writer):
                if process.pid is not None:
                    process.kill()
                    process.join()
    return load.count / (last - (first if is_away else began)), latencies


def _subscribe(kind: str, address: str, load: DurableLoad) -> None:
    import asyncio

    (asyncio.run if kind == "RabbitMQ" else run)(SUBSCRIBE[kind](address, load))


def _in_process(context: Any, target: Callable[..., None], *arguments: Any) -> None:
    process = context.Process(target=target, args=arguments, daemon=True)
    process.start()
    process.join(WAIT_S)
    if process.exitcode != 0:
        raise SystemExit(f"{arguments[0]}: {target.__name__} has failed")


def transient(directory: Path, count: int, has_store: bool, durable_rate: float = 0.0) -> float:
    """Transient notifications a second through one broker, with durable traffic beside it or not."""
    context = multiprocessing.get_context("spawn")
    with running("Catchment", directory, has_store) as address:
        beside: list[Any] = []
        if durable_rate:
            load = DurableLoad(10**9, rate=durable_rate)
            _in_process(context, _subscribe, "Catchment", address, load)
            ready, go = context.Event(), context.Event()
            go.set()
            for target, gate in ((receive, ready), (publish, go)):
                arguments = ("Catchment", address, load, gate, context.Queue())
                beside.append(context.Process(target=target, args=arguments, daemon=True))
                beside[-1].start()
            ready.wait(WAIT_S)
            time.sleep(1.0)
        stream = Load(count, progress=context.Value("q", 0, lock=False))
        ready, go = context.Event(), context.Event()
        sent, received = context.Queue(), context.Queue()
        processes = [
            context.Process(
                target=receive_transient, args=("Catchment", address, stream, ready, received), daemon=True
            ),
            context.Process(target=send_transient, args=("Catchment", address, stream, go, sent), daemon=True),
        ]
        try:
            for process in processes:
                process.start()
            ready.wait(WAIT_S)
            time.sleep(0.5)
            go.set()
            began = sent.get(timeout=WAIT_S)[0]
            last = received.get(timeout=WAIT_S)[0]
        finally:
            for process in (*processes, *beside):
                process.kill()
                process.join()
    return float(count / (last - began))


# --- the table ----------------------------------------------------------------------------------


def rows_of(peer: str, directory: Path, quick: bool) -> Iterator[Row]:
    scale = 5 if quick else 1
    rate, _ = measured(peer, DurableLoad(20_000 // scale), directory)
    yield peer, "stored and delivered, 256 under way", f"{rate:,.0f}/s"
    seconds = 4 if quick else 10
    _, latencies = measured(peer, DurableLoad(int(rate / 2 * seconds), rate=rate / 2), directory)
    cuts = quantiles(latencies, n=100)
    yield peer, "p50, p99 at half of that", f"{median(latencies) * 1e3:,.1f} ms, {cuts[98] * 1e3:,.1f} ms"
    one_by_one, _ = measured(peer, DurableLoad(2_000 // scale, under_way=1), directory)
    yield peer, "one by one", f"{one_by_one:,.0f}/s"
    many, _ = measured(peer, DurableLoad(2_000 // scale, fan_out=100), directory)
    yield peer, "to 100 durable subscribers", f"{many:,.0f}/s, {many * 100:,.0f} deliveries/s"
    count = 100_000 // scale
    recovery, _ = measured(peer, DurableLoad(count, under_way=2_048), directory, is_away=True)
    yield peer, f"back after {count:,} missed", f"{recovery:,.0f}/s, {count / recovery:,.1f} s"


def own_rows(directory: Path, quick: bool) -> Iterator[Row]:
    scale = 5 if quick else 1
    crowd, _ = measured("Catchment", DurableLoad(20_000 // scale, crowd=10_000), directory)
    yield "Catchment", "beside 10,000 durable filters of others", f"{crowd:,.0f}/s"
    without, beside, busy = [], [], []
    count = 100_000 // scale
    for _ in range(1 if quick else 3):
        without.append(transient(directory, count, has_store=False))
        beside.append(transient(directory, count, has_store=True))
        busy.append(transient(directory, count, has_store=True, durable_rate=500))
    yield "Catchment", "transient, no store", f"{median(without):,.0f}/s"
    ratio = median(b / w for b, w in zip(beside, without, strict=True))
    yield "Catchment", "transient, with a store", f"{median(beside):,.0f}/s, {ratio:.2f} of that"
    ratio = median(b / w for b, w in zip(busy, without, strict=True))
    yield "Catchment", "transient, beside 500 stored/s", f"{median(busy):,.0f}/s, {ratio:.2f} of that"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer notifications; writes no report")
    parser.add_argument("--only", choices=list(PEERS), help="this one alone; writes no report")
    given = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="catchment-bench-") as name:
        for peer in PEERS if given.only is None else [given.only]:
            if reason := why_not(peer):
                rows.append((peer, "left out", reason))
                print(*rows[-1], sep="\t", flush=True)
                continue
            for row in rows_of(peer, Path(name), given.quick):
                rows.append(row)
                print(*row, sep="\t", flush=True)
        if given.only in (None, "Catchment"):
            for row in own_rows(Path(name), given.quick):
                rows.append(row)
                print(*row, sep="\t", flush=True)
    if not given.quick and given.only is None:
        table = ["| broker | what | measured |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows)]
        RESULTS.write_text("# Durable delivery\n\n`./dev bench durable`\n\n" + "\n".join(table) + "\n", "utf-8")


if __name__ == "__main__":
    main()
