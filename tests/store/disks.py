"""What the kernel was told about the files of a store, and what a power cut may leave of it.

`strace` records every write and every sync of a real process with the SQLite that brokers use. When the power fails, a
file has what was written before its last sync. Of what was written after it, each sector of 512 bytes may be there or
not. So from one recording there are as many disks as there are moments and choices.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent.parent
SECTOR = 512
CALLS = "pwrite64,write,ftruncate,truncate,unlink,rename,fsync,fdatasync"
# A process, a call, a file, and the rest of the line.
_LINE = re.compile(r'^\d+ +(\w+)\((?:\d+<([^>]*)>|"([^"]*)")(?:, )?(.*)\) += (-?\d+)')


@cache
def missing():
    """Why nothing can be recorded; nothing if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed: apt-get install strace"
    tried = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, text=True, check=False)
    return None if tried.returncode == 0 else f"strace may not watch processes here: {tried.stderr.strip()[:200]}"


@dataclass
class Call:
    """`name` is write, truncate, remove, sync, for the folder sync names, or returned: then `returned` is the serial of
    the last write of the store that has returned."""

    name: str
    file: str = ""
    offset: int = 0
    content: bytes = b""
    returned: int = 0


@dataclass
class Recording:
    calls: list[Call] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def watched(folder, seed, *options):
    """Runs the workload in a folder. `options` are more for strace, such as faults to inject."""
    trace = Path(f"{folder}.trace")
    command = ["strace", "-f", "-y", "-xx", "-s", "1048576", "-e", f"trace={CALLS}", "-o", str(trace), *options]
    program = [sys.executable, "-m", "tests.store.workload", str(folder), str(seed)]
    subprocess.run([*command, *program], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    recording = recorded(trace, folder)
    trace.unlink()
    return recording


def recorded(trace, folder):
    recording = Recording()
    with trace.open() as lines:
        for line in lines:
            parts = _LINE.match(line)
            path = _text(parts[2] or parts[3]).decode() if parts else ""
            if not parts or parts[5].startswith("-"):
                continue
            if path == str(folder):
                recording.calls.append(Call("sync names"))
            elif path.startswith(f"{folder}/"):
                _record(recording, parts[1], path.rpartition("/")[2], parts[4])
    return recording


def _record(recording, call, file, rest):
    if file == "returned":
        said = _text(rest.split('"')[1]).decode().strip()
        if said.isdigit():
            recording.calls.append(Call("returned", returned=int(said)))
        else:
            recording.problems.append(said)
    elif call == "pwrite64":
        _, content, numbers = rest.split('"')
        recording.calls.append(Call("write", file, int(numbers.split(", ")[2]), _text(content)))
    elif call == "ftruncate":
        recording.calls.append(Call("truncate", file, int(rest)))
    elif call in ("fsync", "fdatasync"):
        recording.calls.append(Call("sync", file))
    elif call == "unlink":
        recording.calls.append(Call("remove", file))
    else:
        assert file.endswith(("-ballast", "-lock")), (call, file)


def _text(escaped):
    return bytes.fromhex(escaped.replace("\\x", ""))


# --- power cuts ---------------------------------------------------------------------------------


def after_power_cut(calls, chance: Random):
    """The files as they may be, after these calls and no more."""
    files: dict[str, bytearray] = {}
    unsynced: dict[str, list[Call]] = {}
    for call in calls:
        if call.name == "sync":
            for each in unsynced.pop(call.file, ()):
                _apply(files, each)
            files.setdefault(call.file, bytearray())
        elif call.name == "sync names":
            # A file that was removed stays removed.
            for name in [name for name, pending in unsynced.items() if pending[-1].name == "remove"]:
                del unsynced[name]
                files.pop(name, None)
        elif call.name != "returned":
            unsynced.setdefault(call.file, []).append(call)
    # All or nothing is as likely as anything in between.
    share = chance.choice((0.0, 1.0, chance.random()))
    for pending in unsynced.values():
        for call in pending:
            for piece in _sectors(call):
                if chance.random() < share:
                    _apply(files, piece)
    return {name: bytes(content) for name, content in files.items()}


def _sectors(call):
    if call.name != "write":
        yield call
        return
    start = call.offset
    while start < call.offset + len(call.content):
        end = min((start // SECTOR + 1) * SECTOR, call.offset + len(call.content))
        yield Call("write", call.file, start, call.content[start - call.offset : end - call.offset])
        start = end


def _apply(files, call):
    content = files.setdefault(call.file, bytearray())
    if call.name == "remove":
        files.pop(call.file, None)
    elif call.name == "truncate":
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
    else:
        content.extend(bytes(max(0, call.offset - len(content))))
        content[call.offset : call.offset + len(call.content)] = call.content


def put(files, folder):
    """Files as they would be found; not those that hold nothing after a crash."""
    folder.mkdir()
    for name, content in files.items():
        if not name.endswith(("-shm", "-ballast", "-lock")):
            (folder / name).write_bytes(content)
