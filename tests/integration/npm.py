"""Packages of npm for the tests, as their lock file says, installed once into a cache outside the sources."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

NODE_VERSION_MIN = 20
INSTALL_S_MAX = 180


def installed(sources: Path) -> tuple[Path | None, str]:
    """A directory with the JavaScript sources and their packages; or None, and the reason why there is none."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None, "node or npm is not installed"
    printed = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)", printed)
    if version is None or int(version[1]) < NODE_VERSION_MIN:
        return None, f"node {NODE_VERSION_MIN} or newer is needed, found {printed.strip()}"
    lock = (sources / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "catchment"
    target = cache / f"js-{hashlib.sha256(lock).hexdigest()[:16]}"
    problem = "" if (target / "installed").exists() else _install(sources, target)
    if problem:
        return None, f"npm ci failed: {problem}"
    for script in sources.glob("*.cjs"):
        shutil.copy(script, target)
    return target, ""


def _install(sources: Path, target: Path) -> str:
    """Installs and returns "", or returns why it failed. It installs into a directory of this process and then renames
    that, so that two test processes do not disturb each other."""
    own = target.with_name(f"{target.name}.{os.getpid()}")
    own.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(sources / name, own)
    # Without network the tests are skipped, so npm is to give up soon.
    give_up_soon = ["--fetch-retries=1", "--fetch-timeout=30000"]
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *give_up_soon]
    try:
        run = subprocess.run(command, cwd=own, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
        problem = run.stderr.strip()[-300:] or "no reason given" if run.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        problem = str(error)
    if not problem:
        (own / "installed").touch()
        try:
            own.rename(target)
        except OSError:
            # Another process may have been first.
            problem = "" if (target / "installed").exists() else f"{target} cannot be made"
    shutil.rmtree(own, ignore_errors=True)
    return problem
