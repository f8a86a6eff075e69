"""Simulated series: seasons with trend and noise, and what an accelerometer in a pocket measures.

They need no file and no network, and the same seed gives the same numbers.

T steps, A activities
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from glassformer.data.examples import Series
from glassformer.data.report import Report
from glassformer.data.source import Found, Source, Split
from glassformer.recipe.values import Count, Fraction, Number, Seed, Whole

Values = NDArray[np.float64]
MOST = 10_000_000  # steps of all series
HOUR = 3_600.0  # seconds in a step of the seasons
START = 1_767_225_600.0  # 2026-01-01, in seconds since 1970
RATE = 20  # measurements in a second of the accelerometer
HELD_OUT = 8  # people whose recordings are for valid, and for test
SPLIT_SEEDS = {"train": 0, "valid": 1, "test": 2}
# What the body does: steps a second, how strong they are in g, and how far the sensor is tilted, in degrees.
ACTIVITIES: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "cycling": ((1.1, 1.6), (0.10, 0.18), (35, 55)),
    "lying": ((0, 0), (0, 0), (80, 100)),
    "running": ((2.5, 3.2), (0.9, 1.4), (0, 20)),
    "sitting": ((0, 0), (0, 0), (45, 65)),
    "standing": ((0, 0), (0, 0), (0, 15)),
    "walking": ((1.6, 2.1), (0.25, 0.45), (0, 20)),
}


class SimulatedSource(Source):
    """Series that are drawn at random. A subclass says how one is drawn."""

    gives = Series
    unit = "series"
    columns: ClassVar[tuple[str, ...]]
    seed: Seed = Field(0, description="which series are drawn")

    def columns_read(self) -> int:
        """How many numbers a step has."""
        return len(self.columns)


class SeasonsSource(SimulatedSource):
    """Hourly values with a season, a trend and noise, each series with its own level, strength and shape."""

    kind: Literal["seasons"]
    columns: ClassVar[tuple[str, ...]] = ("value",)
    count: Annotated[Count, Field(le=10_000)] = Field(24, description="series")
    length: Annotated[Count, Field(le=1_000_000)] = Field(480, description="steps of each series")
    season: Annotated[Whole, Field(ge=2, le=10_000)] = Field(24, description="steps of a season")
    trend: Annotated[Number, Field(ge=0, le=1e6)] = Field(
        1.0, description="how much a series rises or falls in a season, at most"
    )
    noise: Annotated[Number, Field(ge=0, le=1e6)] = Field(
        2.0, description="standard deviation of the noise; a season's strength is 5 to 15"
    )
    missing: Fraction = Field(0.0, description="the fraction of values that are missing")

    @model_validator(mode="after")
    def _bounded(self) -> SeasonsSource:
        if self.count * self.length > MOST:
            raise ValueError(f"source.count times source.length is {self.count * self.length:,}: {MOST:,} at most")
        return self

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """Series after series."""
        for number in range(self.count):
            rng = np.random.default_rng([self.seed % 2**64, number])
            steps = np.arange(self.length) / self.season  # (T), in seasons
            second, phases = rng.uniform(0.2, 0.6), rng.uniform(0, 2 * np.pi, 2)
            season = np.sin(2 * np.pi * steps + phases[0]) + second * np.sin(4 * np.pi * steps + phases[1])
            level, slope = rng.uniform(20, 80), self.trend * rng.uniform(-1, 1)
            noise = rng.normal(0, self.noise, self.length)
            values = level + slope * steps + rng.uniform(5, 15) * season + noise
            known = rng.random(self.length) >= self.missing
            rows = tuple(
                (round(float(value), 3) if there else None,) for value, there in zip(values, known, strict=True)
            )
            times = tuple((START + HOUR * np.arange(self.length)).tolist())
            yield Series(f"series {number + 1}", self.columns, rows, times, dated=True), f"seasons:{number + 1}"


class ActivitiesSource(SimulatedSource):
    """What an accelerometer measures, in g, 20 times a second, on people who walk, run, cycle, stand, sit and lie.

    Each person moves at their own pace and wears the sensor at their own angle; valid and test are other people.
    """

    makes_splits = True
    kind: Literal["activities"]
    columns: ClassVar[tuple[str, ...]] = ("x", "y", "z")
    count: Annotated[Count, Field(le=10_000)] = Field(40, description="people to learn from")
    seconds: Annotated[Whole, Field(ge=2, le=3_600)] = Field(15, description="how long each activity lasts")
    noise: Annotated[Number, Field(ge=0, le=1e3)] = Field(0.05, description="standard deviation of the noise, in g")

    @model_validator(mode="after")
    def _bounded(self) -> ActivitiesSource:
        steps = self.count * self.seconds * RATE * len(ACTIVITIES)
        if steps > MOST:
            raise ValueError(f"source.count times source.seconds gives {steps:,} steps: {MOST:,} at most")
        return self

    def read(self, split: Split, base: Path, report: Report) -> Iterator[Found]:
        """The recording of one person after another, who does everything once."""
        for number in range(self.count if split == "train" else HELD_OUT):
            rng = np.random.default_rng([self.seed % 2**64, SPLIT_SEEDS[split], number])
            worn, names = rng.normal(0, 8, 2), list(rng.permutation(list(ACTIVITIES)))
            measured = np.concatenate([self._measured(str(name), worn, rng) for name in names])  # (T, 3)
            rows: Any = tuple(map(tuple, measured.round(4).tolist()))
            labels = tuple(str(name) for name in names for _ in range(self.seconds * RATE))
            times = tuple((np.arange(len(rows)) / RATE).tolist())
            name = f"{split} person {number + 1}"
            yield Series(name, self.columns, rows, times, labels), f"activities {name}"

    def _measured(self, name: str, worn: Values, rng: np.random.Generator) -> Values:
        """The acceleration of one activity, (T, 3): gravity as the sensor is turned, steps and their echo, noise."""
        pace, strength, tilts = (rng.uniform(*limits) for limits in ACTIVITIES[name])
        seconds = np.arange(self.seconds * RATE) / RATE  # (T)
        phase = 2 * np.pi * np.cumsum(pace * (1 + 0.05 * rng.normal(size=len(seconds)))) / RATE + rng.uniform(0, 6)
        up = strength * (np.sin(phase) + 0.4 * np.sin(2 * phase + 1))
        aside = strength * 0.5 * np.sin(phase / 2 + rng.uniform(0, 6))
        ahead = strength * 0.6 * np.sin(phase + rng.uniform(0, 6))
        sway = 0.02 * np.sin(2 * np.pi * 0.25 * seconds + rng.uniform(0, 6))  # breath
        tilt, roll = np.radians(tilts + worn[0]), np.radians(worn[1])
        down = np.array([np.sin(roll), np.sin(tilt) * np.cos(roll), np.cos(tilt) * np.cos(roll)])
        moved = np.stack([aside, ahead + sway, up], axis=1)  # (T, 3)
        noise: Values = rng.normal(0, self.noise, moved.shape)
        return down + moved + noise
