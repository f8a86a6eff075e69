"""Ask the OSV database (https://osv.dev) for known vulnerabilities of the versions in constraints.txt: `make audit`."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

PINS = Path(__file__).parent.parent / "constraints.txt"
URL = "https://api.osv.dev/v1/querybatch"
Ask = Callable[[dict[str, Any]], dict[str, Any]]


def pins(text: str) -> list[tuple[str, str]]:
    """The packages in a list of constraints, with their versions; ValueError at a line that pins none."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        pin = line.partition("#")[0].strip()
        if not pin:
            continue
        match = re.fullmatch(r"([\w.-]+)==([\w.!+-]+)", pin)
        if match is None:
            raise ValueError(f"line {number} pins no version: {line}")
        found.append((match[1], match[2]))
    return found


def ask_osv(query: dict[str, Any]) -> dict[str, Any]:
    """The database's answer to a query."""
    request = urllib.request.Request(URL, json.dumps(query).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  # the address is above
        found: dict[str, Any] = json.load(answer)
        return found


def audit(packages: list[tuple[str, str]], ask: Ask) -> list[str]:
    """A line for each known vulnerability of these versions."""
    queries = [{"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in packages]
    results = ask({"queries": queries})["results"]
    return [
        f"{name} {version}: {found['id']} (https://osv.dev/vulnerability/{found['id']})"
        for (name, version), result in zip(packages, results, strict=True)
        for found in result.get("vulns", [])
    ]


def main(ask: Ask = ask_osv, path: Path = PINS) -> str | int:
    """Print what is known; 0 if that is nothing, else 1 or a sentence."""
    try:
        packages = pins(path.read_text(encoding="utf-8"))
        found = audit(packages, ask)
    except OSError as error:
        return f"audit: {getattr(error, 'reason', error)}: the versions were not checked, which needs {URL}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return f"audit: the versions were not checked: {error}"
    print(*found, f"{len(packages)} pinned versions, {len(found)} known vulnerabilities", sep="\n")
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main())
