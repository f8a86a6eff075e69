"""A full disk: at every size from 4 kB up, and at every operation that writes. Then there is room again.

The command ends with exit code 1 and a sentence; afterwards the work can be brought to its end as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from drill.attacks.kills import Scenario, check_not_half_made, check_result, scenarios, undisturbed
from drill.engine import Bench, Broken, Case
from drill.files import Fault
from drill.world import World

STEP = 4096


def cases(world: World, seed: int, count: int) -> list[Case]:
    """Every size and operation of every scenario, or some of them."""
    found = [case for scenario in scenarios(world) for case in _of(world, scenario)]
    return found if len(found) <= count else Random(f"{seed}/disk").sample(found, count)


def _of(world: World, scenario: Scenario) -> list[Case]:
    outcome, expected = undisturbed(scenario, world.root)
    sizes = range(STEP, outcome.bytes, STEP)
    faults = [(f"{size // 1024}kB", Fault("full", capacity=size)) for size in (*sizes, outcome.bytes - 1)]
    writes = [number for number, each in enumerate(outcome.operations) if each.split()[0] in ("write", "mkdir", "open")]
    faults += [(f"operation{number}", Fault("full", number)) for number in writes]
    return [Case(f"disk/{scenario.name}/{name}", _attack(scenario, fault, expected)) for name, fault in faults]


def _attack(scenario: Scenario, fault: Fault, expected: Any) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        scenario.prepare(bench)
        outcome = bench.run(*scenario.arguments, fault=fault)
        if outcome.code not in (0, 1):
            raise Broken(f"on a full disk, exit code {outcome.code}: {outcome.last}", "on a full disk, exit code 2")
        if outcome.code == 1 and not any(word in outcome.err.lower() for word in ("space", "written", "full")):
            raise Broken(f"a full disk is not what it says: {outcome.last}")
        bench.check_clean()
        check_not_half_made(scenario, bench, expected)
        scenario.recover(bench, scenario.arguments, fault.operation % 2 == 0)
        check_result(scenario, bench, expected)

    return act
