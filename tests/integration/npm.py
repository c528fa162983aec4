"""Packages of npm for tests, installed once into a cache outside the sources, as their lock says."""

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

NODE_VERSION_MIN = 20
INSTALL_S_MAX = 180


def installed(sources: Path) -> tuple[Path | None, str]:
    """A directory with the sources and their packages, or why there is none."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None, "there is no node or no npm"
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)", said)
    if version is None or int(version[1]) < NODE_VERSION_MIN:
        return None, f"node {NODE_VERSION_MIN} or newer is needed, found {said.strip()}"
    lock = (sources / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "catchment"
    target = cache / f"js-{hashlib.sha256(lock).hexdigest()[:16]}"
    problem = "" if (target / "installed").exists() else _install(sources, target)
    if problem:
        return None, f"npm ci failed: {problem}"
    for one in sources.glob("*.cjs"):
        shutil.copy(one, target)
    return target, ""


def _install(sources: Path, target: Path) -> str:
    """In a place of this process's own, then moved: two test processes do not meet."""
    own = target.with_name(f"{target.name}.{os.getpid()}")
    own.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(sources / name, own)
    quick = ["--fetch-retries=1", "--fetch-timeout=30000"]
    command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", *quick]
    try:
        run = subprocess.run(command, cwd=own, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
        problem = run.stderr.strip()[-300:] or "no reason given" if run.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as trouble:
        problem = str(trouble)
    if not problem:
        (own / "installed").touch()
        try:
            own.rename(target)
        except OSError:
            problem = "" if (target / "installed").exists() else f"{target} cannot be made"
    shutil.rmtree(own, ignore_errors=True)
    return problem
