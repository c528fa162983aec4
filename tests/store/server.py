"""A PostgreSQL server of our own, in a folder of its own, reached by a socket in that folder."""

import os
import pwd
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

# Debian keeps these out of the path.
FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
USER = "postgres"


@cache
def program(name: str) -> str | None:
    found = shutil.which(name) or next((str(each / name) for each in FOLDERS if (each / name).exists()), None)
    return None if found is None else os.path.realpath(found)


def missing() -> str | None:
    """Why there can be no server; nothing if there can."""
    if program("initdb") is None or program("pg_ctl") is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    if os.getuid() == 0:
        try:
            pwd.getpwnam(USER)
        except KeyError:
            return f"PostgreSQL does not run as root, and there is no user {USER}"
    return None


class Server:
    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = Path(folder)
        self._user: dict[str, Any] = {"user": USER, "group": pwd.getpwnam(USER).pw_gid} if os.getuid() == 0 else {}
        self.folder.mkdir(parents=True, exist_ok=True)
        if self._user:
            shutil.chown(self.folder, USER)
        self._run("initdb", "-D", str(self.data), "-U", USER, "--auth=trust", "--no-locale", "-E", "UTF8", "-N")
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.folder),
            "shared_buffers": "32MB",
            "max_connections": "20",
            **settings,
        }
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in options.items())
        self._control("start")

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def url(self, schema: str) -> str:
        return f"postgresql://{USER}@/postgres?host={self.folder}&catchment_schema={schema}"

    def restart(self) -> None:
        """As if the power had failed."""
        self._control("restart", "-m", "immediate")

    def stop(self) -> None:
        self._control("stop", "-m", "immediate")

    def _control(self, what: str, *options: str) -> None:
        self._run("pg_ctl", what, "-D", str(self.data), "-w", "-l", str(self.folder / "log"), *options)

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(program(name)), *arguments]
        subprocess.run(command, check=True, cwd=self.folder, stdout=subprocess.DEVNULL, **self._user)
