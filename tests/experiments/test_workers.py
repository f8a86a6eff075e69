"""Seeds and learning rates: trainings that workers share give the same as trainings one after the other."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from glassformer.experiments.finding import Spread
from glassformer.experiments.trial import Trial
from glassformer.experiments.workers import Workers, _in_memory

BEST = {"low": 1e-3, "high": 1e-1}  # the rate that suits each variant


def drawn(trial: Trial, count: int) -> tuple[int, int, list[float]]:
    """Random numbers of a job that nobody has given a seed, and where it ran."""
    return trial.seed, torch.get_num_threads(), torch.rand(count).tolist()


def learned(trial: Trial, variant: str, rate: float) -> tuple[float, tuple[int, float]]:
    """A validation loss that is lowest at the best rate, by a margin that a seed cannot turn."""
    return abs(rate - BEST[variant]) + 1e-6 * trial.seed, (trial.seed, rate)


def process(_: int) -> int:
    return os.getpid()


def fail(number: int) -> int:
    raise ValueError(f"job {number}")


def test_workers_change_nothing_but_the_process() -> None:
    jobs = [(each, count) for each in Trial(5).seeds() for count in (1, 2)]
    told: list[tuple[str, int, int | None]] = []
    before = torch.get_rng_state()
    alone = Trial(5, lambda *words: told.append(words)).map("drawing", drawn, jobs)
    assert torch.equal(torch.get_rng_state(), before)
    assert told == [("drawing", number, 6) for number in range(1, 7)]
    told.clear()
    with Workers(2) as workers:
        trial = Trial(5, lambda *words: told.append(words), workers)
        assert trial.map("drawing", drawn, jobs) == alone
        assert told == [("drawing", number, 6) for number in range(1, 7)]
        assert os.getpid() not in trial.map("asking", process, [(1,), (2,)])
        with pytest.raises(ValueError, match="job 1"):
            trial.map("failing", fail, [(1,), (1,)])
        assert len(trial.map("asking again", process, [(1,)])) == 1
    assert [(seed, threads) for seed, threads, _ in alone] == [(s, 1) for s in (15, 15, 16, 16, 17, 17)]


def test_what_cannot_be_sent_to_a_worker_fails_without_workers_too() -> None:
    with pytest.raises(Exception, match=r"Can't pickle .*lambda"):
        Trial(0).map("", lambda: 1, [()])


def test_workers_end_with_the_process_that_began_them() -> None:
    script = (
        "import os, sys, time\n"
        "from glassformer.experiments.workers import Workers\n"
        "if __name__ == '__main__':\n"
        "    workers = Workers(1)\n"
        "    print(*workers.map(os.getpid, [()], 0, lambda done: None), flush=True)\n"
        "    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)  # noqa: S603
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 10
    while time.monotonic() < end and _runs(child):
        time.sleep(0.05)
    assert not _runs(child)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    try:  # one that has ended and that nobody has asked for is still listed
        with open(f"/proc/{process}/stat", encoding="ascii") as file:  # noqa: PTH123
            return file.read().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_each_variant_is_repeated_at_the_rate_that_suits_it() -> None:
    found = Trial(2).tuned("learning", learned, ["low", "high"], rates=(1e-3, 1e-2, 1e-1))
    for variant, tuned in found.items():
        assert tuned.rate == BEST[variant]
        assert tuned.results == [(seed, tuned.rate) for seed in (6, 7, 8)]
        assert min(tuned.losses, key=tuned.losses.__getitem__) == tuned.rate
    twice = Trial(2, repeats=2).tuned("", learned, ["low"], rates=(1e-3, 1e-1), on=2)
    assert twice["low"].results == [(4, 1e-3), (5, 1e-3)]


def test_no_two_seeds_share_a_repetition() -> None:
    seeds = [each.seed for seed in range(10) for each in Trial(seed).seeds()]
    assert len({*seeds}) == len(seeds) == 30
    assert max(each.seed for each in Trial(2**63 - 1).seeds()) < 2**63


def test_a_spread_is_its_mean_and_knows_its_range() -> None:
    three = Spread([0.5, 0.6, 1.0])
    assert three == pytest.approx(0.7)
    assert (three.low, three.high) == (0.5, 1.0)
    assert f"{three:.0%}" == "70% (50% to 100%)"
    assert f"{Spread([0.999, 0.998]):.0%}" == "100%"
    assert f"{Spread([three, three]):.0%}" == "70%"


def test_what_is_rounded_to_nothing_has_no_minus() -> None:
    assert f"{Spread([-0.001, -0.002]):.2f}" == "0.00"
    assert f"{Spread([-0.001, -0.3]):.1f}" == "-0.2 (-0.3 to 0.0)"
    assert f"{Spread([-0.004, -0.002]):.0%}" == "0%"
    assert f"{Spread([-10, -10]):.0f}" == "-10"


@pytest.mark.parametrize(("writable", "free", "there"), [(True, 2**30, True), (True, 2**26, False), (False, 0, False)])
def test_files_of_workers_lie_in_memory_where_there_is_room(
    monkeypatch: pytest.MonkeyPatch, writable: bool, free: int, there: bool
) -> None:
    monkeypatch.setattr("os.access", lambda *_: writable)
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    assert (_in_memory() is not None) is there
