"""Ask the OSV database (https://osv.dev) for known vulnerabilities of the versions in constraints.txt: `make audit`."""

from __future__ import annotations

import json
import re
import sys
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

PINS = Path(__file__).parent.parent / "constraints.txt"
URL = "https://api.osv.dev/v1/querybatch"
MOST_PAGES = 100
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
    """A line for each known vulnerability of these versions; an answer in pages is read to its end."""
    left: list[dict[str, Any]] = [
        {"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in packages
    ]
    lines: dict[str, list[str]] = {name: [] for name, _ in packages}
    for _ in range(MOST_PAGES):
        again = []
        for query, result in zip(left, ask({"queries": left})["results"], strict=True):
            name, version = query["package"]["name"], query["version"]
            known = [found["id"] for found in result.get("vulns", [])]
            lines[name] += [f"{name} {version}: {each} (https://osv.dev/vulnerability/{each})" for each in known]
            if token := result.get("next_page_token"):
                again.append({**query, "page_token": token})
        if not again:
            return [line for found in lines.values() for line in found]
        left = again
    raise ValueError(f"the answer has more than {MOST_PAGES} pages")


def main(ask: Ask = ask_osv, path: Path = PINS) -> str | int:
    """Print what is known; 0 if that is nothing, else 1 or a sentence."""
    try:
        packages = pins(path.read_text(encoding="utf-8"))
        found = audit(packages, ask)
    except OSError as error:
        return f"audit: {getattr(error, 'reason', error)}: the versions were not checked, which needs {URL}"
    except (ValueError, KeyError, TypeError, AttributeError, HTTPException) as error:
        return f"audit: the versions were not checked: {error}"
    print(*found, f"{len(packages)} pinned versions, {len(found)} known vulnerabilities", sep="\n")
    return min(1, len(found))


if __name__ == "__main__":
    sys.exit(main())
