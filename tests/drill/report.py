"""The report: how many cases of each attack, how they ended, and every finding with the command that repeats it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from glassformer.parts.linear import kernels


@dataclass
class Result:
    """What came of one case."""

    name: str
    seconds: float
    commands: int = 0
    kills: int = 0
    codes: dict[str, int] = field(default_factory=dict)
    memory: int = 0
    slowest: float = 0.0  # processor seconds of its slowest command
    broken: str | None = None
    key: str | None = None
    shown: list[str] = field(default_factory=list)  # the commands of a case that broke something


@dataclass
class Report:
    """All results."""

    seed: int
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def broken(self) -> list[Result]:
        """The cases that broke something."""
        return [each for each in self.results if each.broken is not None]

    def facts(self) -> dict[str, Any]:
        """The counts and the findings, as JSON has them."""
        attacks: dict[str, Any] = defaultdict(lambda: Counter[str]())
        for each in self.results:
            attacks[each.name.split("/")[0]].update(
                {"cases": 1, "commands": each.commands, "kills": each.kills, "broken": int(each.broken is not None)}
            )
        codes: Counter[str] = Counter()
        for each in self.results:
            codes.update(each.codes)
        return {
            "seed": self.seed,
            "cases": len(self.results),
            "commands": sum(each.commands for each in self.results),
            "kills": sum(each.kills for each in self.results),
            "broken": len(self.broken),
            "seconds": round(self.seconds, 1),
            "slowest_command_s": round(max((each.slowest for each in self.results), default=0), 1),
            "most_memory_mb": max((each.memory for each in self.results), default=0) >> 20,
            "exit_codes": dict(sorted(codes.items())),
            "attacks": {name: dict(counts) for name, counts in sorted(attacks.items())},
            "kernels": kernels(),
            "findings": self.findings(),
        }

    def findings(self) -> list[dict[str, Any]]:
        """The findings: cases with the same key are one, the most frequent first."""
        groups: dict[str, list[Result]] = defaultdict(list)
        for each in self.broken:
            groups[each.key or ""].append(each)
        ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
        return [
            {
                "what": key,
                "cases": len(some),
                "example": some[0].broken,
                "commands": some[0].shown,
                "repeat": [f"make drill SEED={self.seed} ONLY={each.name}" for each in some[:3]],
            }
            for key, some in ordered
        ]

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**self.facts(), "broken_cases": [asdict(each) for each in self.broken]}, indent=1))

    def lines(self) -> list[str]:
        """The report for people."""
        facts = self.facts()
        lines = [f"{'attack':12} {'cases':>7} {'commands':>9} {'kills':>6} {'broken':>7}"]
        for name, counts in [*facts["attacks"].items(), ("all", facts)]:
            lines.append(
                f"{name:12} {counts['cases']:7,} {counts['commands']:9,} {counts['kills']:6,} {counts['broken']:7,}"
            )
        lines.append(
            f"{facts['seconds']:,.0f} s; slowest command {facts['slowest_command_s']} s, most memory "
            f"{facts['most_memory_mb']:,} MB; exit codes "
            + ", ".join(f"{code}: {count:,}" for code, count in facts["exit_codes"].items())
        )
        for number, each in enumerate(facts["findings"], 1):
            lines += ["", f"{number}. {each['what']} ({each['cases']} cases)", f"   {each['example']}"]
            lines += [f"   $ {command}" for command in each["commands"][-3:]]
            lines.append(f"   {each['repeat'][0]}")
        return lines
