"""Standard input: strange lines for every command that reads texts, and answers that do not depend on company."""

from __future__ import annotations

import json
from random import Random

from drill.attacks.damage import VERBS
from drill.engine import Bench, Broken, Case
from drill.schemas import STRINGS
from drill.world import World

PLAIN = ("a b c", "the cat sat", "The [MASK] sat on the [MASK]", "The <extra_id_0> sat", "h g f e d c b a", "")
ENDS = (b"\n", b"\n", b"\r\n", b"\x00", b"\n\n")


def cases(world: World, seed: int, count: int) -> list[Case]:
    """As many as asked for; each command in its turn, company every fourth time."""
    tasks = sorted(VERBS)
    return [
        (_company if number % 4 == 3 else _strange)(world, seed, number, tasks[number % len(tasks)])
        for number in range(count)
    ]


def _arguments(world: World, task: str, bench: Bench) -> list[str]:
    (bench.work / "context.txt").write_text("The cat sat on the mat.", encoding="utf-8")
    verb, _, *options = VERBS[task]
    return [verb, *options, "--run", str(world.run(task))]


def _strange(world: World, seed: int, number: int, task: str) -> Case:
    name = f"inputs/{task}/{number}"

    def act(bench: Bench) -> None:
        rng = Random(f"{seed}/{name}")
        lines = [_line(rng) for _ in range(rng.choice((0, 1, 2, 5, 20)))]
        stdin = b"".join(line + rng.choice(ENDS) for line in lines)
        if rng.random() < 0.1:
            stdin = rng.choice(
                (b"\n" * 20_000, b"\xff\xfe" + "a b\n".encode("utf-16-le"), b"x" * (1 << 20), bytes(1 << 20))
            )
        arguments = _arguments(world, task, bench)
        as_json = rng.random() < 0.3
        outcome = bench.run(*arguments, *(["--json"] if as_json else []), stdin=stdin)
        bench.check_clean()
        count = stdin.count(b"\n") + (not stdin.endswith(b"\n") and bool(stdin))
        if outcome.code == 0 and outcome.out.count("\n") != count:
            raise Broken(f"{count} lines in, {outcome.out.count(chr(10))} lines out", "other lines out than in")
        for line in outcome.out.split("\n")[:-1] if as_json else ():
            json.loads(line)

    return Case(name, act)


def _line(rng: Random) -> bytes:
    if rng.random() < 0.5:
        return rng.choice(PLAIN).encode()
    text = rng.choice(STRINGS).replace("\n", " ").encode()
    return rng.choice((text, text * 50, rng.randbytes(20).replace(b"\n", b""), b"a b " + text, b"\xff"))


def _company(world: World, seed: int, number: int, task: str) -> Case:
    name = f"inputs/company-{task}/{number}"

    def act(bench: Bench) -> None:
        rng = Random(f"{seed}/{name}")
        words = ["a", "b", "c", "cat", "sat", "The", "zebra"]
        gap = {"masked-language-modelling": " [MASK]", "span-corruption": " <extra_id_0>"}.get(task, "")
        texts = [" ".join(rng.choices(words, k=rng.randint(1, 9))) + gap for _ in range(7)]
        arguments = _arguments(world, task, bench)
        together = bench.run(*arguments, stdin="".join(f"{text}\n" for text in texts).encode()).out.splitlines()
        alone = rng.randrange(len(texts))
        single = bench.run(*arguments, stdin=f"{texts[alone]}\n".encode()).out.splitlines()
        if single != together[alone : alone + 1]:
            raise Broken(
                f"{texts[alone]!r} alone gives {single}, in company {together[alone : alone + 1]}", f"company: {task}"
            )

    return Case(name, act)
