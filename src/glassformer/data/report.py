"""The report: what was read, what was wrong with it, what was dropped, and what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from glassformer.errors import DataError

EXAMPLES = 10  # bad rows that are shown
ROWS = "rows"


@dataclass
class Report:
    """What became of the rows of a source, in counts; the first bad rows with places. If strict, one stops it all."""

    strict: bool = False
    unit: str = ROWS  # what is read; a series has many rows, any of which may be bad
    read: int = 0  # units; where these are rows, bad ones too
    bad: Counter[str] = field(default_factory=Counter)  # what was wrong: how often
    examples: list[str] = field(default_factory=list)  # "train.tsv:12: 1 column, 2 expected"
    dropped: Counter[str] = field(default_factory=Counter)  # the filter: how many examples
    changed: Counter[str] = field(default_factory=Counter)  # truncated, split: how many examples
    shared: Counter[str] = field(default_factory=Counter)  # valid, test: training examples that they have, too
    kept: Counter[str] = field(default_factory=Counter)  # the split: how many examples
    unknown: dict[str, dict[str, float]] = field(default_factory=dict)  # the split, the side: the ratio of its tokens
    notes: list[str] = field(default_factory=list)  # what else there is to know, each a sentence

    def note(self, sentence: str) -> None:
        """Say something once."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def add_bad(self, kind: str, place: str, what: str) -> None:
        """Count a bad row; in strict mode, stop."""
        if self.strict:
            raise DataError(f"{place}: {what} (data.strict is on)")
        self.read += self.unit == ROWS
        self.bad[kind] += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{place}: {what}")

    def lines(self) -> list[str]:
        """The report for people."""
        lines = [f"{self.read:,} {self.unit} read"]
        if self.bad:
            lines.append(f"{self.bad.total():,} bad rows: {_counts(self.bad)}")
            lines += [f"  {example}" for example in self.examples]
            if self.bad.total() > len(self.examples):
                lines.append(f"  … and {self.bad.total() - len(self.examples):,} more")
        lines += self.notes
        if self.dropped:
            lines.append(f"{self.dropped.total():,} dropped: {_counts(self.dropped)}")
        if self.changed:
            lines.append(f"too long: {_counts(self.changed)}")
        for split, count in self.shared.items():
            lines.append(f"{count:,} training examples are in {split}, too")
        for split, sides in self.unknown.items():
            if any(sides.values()):
                ratios = ", ".join(f"{side} {ratio:.2%}" for side, ratio in sides.items())
                lines.append(f"not in the vocabulary, {split}: {ratios} of the tokens")
        lines.append(f"kept: {_counts(self.kept)}")
        return lines

    def sentence(self) -> str:
        """The same in a line, with one bad row for an example."""
        shown = [line for line in self.lines() if not line.startswith(" ")]
        return "; ".join(shown) + (f"; {self.examples[0]}" if self.examples else "")

    def to_dict(self) -> dict[str, Any]:
        """The report in plain values, for JSON."""
        facts = {key: value for key, value in vars(self).items() if key != "strict"}
        return {key: dict(value) if isinstance(value, Counter) else value for key, value in facts.items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Report:
        """The report that `to_dict` gave."""
        counters = {key: Counter(value) for key, value in values.items() if isinstance(value, Mapping)}
        counters.pop("unknown", None)  # which is no counter
        return cls(**{**values, "examples": list(values["examples"]), **counters})


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items()) or "nothing"
