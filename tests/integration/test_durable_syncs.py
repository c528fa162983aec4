"""No confirmation leaves a storage before what it confirms is on disk, twice: in the database and in the witness."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from catchment.client import connect_blocking
from tests.integration.processes import WAIT_S, catchment

STRACE = shutil.which("strace")
PUBLICATIONS = 20


@pytest.mark.skipif(STRACE is None, reason="strace is not installed: nobody can watch the system calls")
def test_nothing_is_confirmed_before_both_syncs(tmp_path: Path) -> None:
    trace, store = tmp_path / "trace", tmp_path / "a.db"
    watched = "trace=fsync,fdatasync,sendto,sendmsg,write,writev,pwrite64"
    command = [str(STRACE), "-f", "-y", "-xx", "-s", "64", "-e", watched, "-o", str(trace)]
    serving = [*catchment("serve", "--listen", "127.0.0.1:0", "--json"), "--store", str(store)]
    with subprocess.Popen([*command, *serving], stdout=subprocess.PIPE, text=True) as broker:
        assert broker.stdout is not None
        try:
            address = json.loads(broker.stdout.readline())["address"]
            with connect_blocking(address, identity="reader") as reader:
                reader.subscribe("n > 0", id="s", durable=True).effective(WAIT_S)
                with connect_blocking(address, identity="p") as publisher:
                    # One after the other: each is a batch of its own.
                    for n in range(1, PUBLICATIONS + 1):
                        publisher.publish({"n": n}, ack="stored")
        finally:
            subprocess.run(["pkill", "-TERM", "-P", str(broker.pid)], check=False)
            broker.wait(WAIT_S)
    confirmations = syncs_before_confirmations(trace.read_text())
    assert len(confirmations) >= PUBLICATIONS
    # Between two confirmations of new publications, and before the first, both were synced.
    assert all({"wal", "witness"} <= synced for synced in confirmations), confirmations


def syncs_before_confirmations(trace: str) -> list[set[str]]:
    """For each confirmation that is new, what was synced since the confirmation before. A call that strace saw in two
    pieces counts when it has returned."""
    name = b"Confirmed".hex()
    confirmation = r"\\x" + r"\\x".join(re.findall("..", name))
    synced: set[str] = set()
    pending: dict[str, str] = {}
    found: list[set[str]] = []
    for line in trace.splitlines():
        thread, _, call = line.partition(" ")
        if (begun := re.search(r"f(?:data)?sync\(\d+<(.*?)>", call)) is not None:
            place = _text(begun[1])
            if "<unfinished" in call:
                pending[thread] = place
            elif call.rstrip().endswith("= 0"):
                synced.add(_kind(place))
        elif re.search(r"<\.\.\. f(?:data)?sync resumed>.*= 0$", call) and thread in pending:
            synced.add(_kind(pending.pop(thread)))
        elif re.search(confirmation, call):
            found.append(synced)
            synced = set()
    return found


def _text(place: str) -> str:
    """With -xx strace writes every byte of a name as \\xNN."""
    return bytes.fromhex(place.replace("\\x", "")).decode() if "\\x" in place else place


def _kind(place: str) -> str:
    return place.rpartition("-")[2] if "-" in Path(place).name else "database"


def test_the_reader_of_traces_sees_a_confirmation_that_comes_too_early() -> None:
    sent = 'sendto(9<x>, "' + "".join(f"\\x{byte:02x}" for byte in b"\x00\x00Confirmed") + '", 9) = 9'
    wal, witness = "fdatasync(5</t/a.db-wal>) = 0", "fdatasync(6</t/a.db-witness>) = 0"
    good = "\n".join(f"1 {line}" for line in (wal, witness, sent))
    assert syncs_before_confirmations(good) == [{"wal", "witness"}]
    assert syncs_before_confirmations("\n".join(f"1 {line}" for line in (wal, sent, witness))) == [{"wal"}]
    split = f"2 fdatasync(6</t/a.db-witness> <unfinished ...>\n1 {wal}\n1 {sent}\n2 <... fdatasync resumed>) = 0"
    assert syncs_before_confirmations(split) == [{"wal"}]
