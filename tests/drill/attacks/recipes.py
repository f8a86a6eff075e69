"""Recipes from the schemas: any task, family and source, with some keys drawn anew; sometimes not even TOML."""

from __future__ import annotations

from random import Random
from typing import Any

from pydantic import BaseModel

from drill.engine import Bench, Broken, Case
from drill.schemas import drawn, keys, strange, toml
from drill.world import Table, World, families, tiny
from glassformer.errors import ConfigurationError
from glassformer.recipe import Recipe
from glassformer.recipe.model import Pretrained, section_of
from glassformer.registry import FAMILIES, SOURCES, TASKS

PATIENCE = 4.0  # seconds, then SIGTERM: a recipe may ask for years of training
PATHS = ("train", "valid", "test", "path", "pretrained", "embeddings")


def cases(world: World, seed: int, count: int) -> list[Case]:
    """As many as asked for."""
    return [_case(world, seed, number) for number in range(count)]


def _case(world: World, seed: int, number: int) -> Case:
    name = f"recipes/{number}"

    def act(bench: Bench) -> None:
        rng = Random(f"{seed}/{name}")
        (bench.work / "my.toml").write_text(draw(world, rng), encoding="utf-8", newline=rng.choice(("\n", "\r\n")))
        if rng.random() < 0.3:
            bench.run("data", "my.toml", *rng.choice(((), ("--json",))), patience=PATIENCE, may_need_memory=True)
            bench.check_clean()
            return
        outcome = bench.run("train", "my.toml", "--out", "out", patience=PATIENCE, may_need_memory=True)
        bench.check_clean()
        out = bench.work / "out"
        if outcome.code == 2 and out.exists():
            raise Broken(
                f"refused, but made {out.name}: {outcome.last}", f"refused, but made a folder: {outcome.last[:40]}"
            )
        if outcome.code == 0 and not (out / "model.safetensors").is_file():
            raise Broken("exit code 0, but there are no weights")
        if outcome.code == 0 and rng.random() < 0.2:
            bench.run("evaluate", "--run", "out", patience=PATIENCE, may_need_memory=True)

    return Case(name, act)


def draw(world: World, rng: Random) -> str:
    """The text of a recipe."""
    task = rng.choice(TASKS.names())
    family = rng.choice(families(task) if rng.random() < 0.95 else FAMILIES.names())
    source = rng.choice([*world.sources()]) if rng.random() < 0.3 else None
    try:
        table: Table = tiny(world, task, family, source)
    except ConfigurationError:  # the family is not for this task
        table = {**tiny(world, task), "model": {"family": family}}
    table = {name: dict(section) for name, section in table.items()}
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        _change(world, table, rng)
    text = toml(table)
    return _damaged(text, rng) if rng.random() < 0.05 else text


def sections(table: Table) -> dict[str, type[BaseModel]]:
    """The class of each section of a recipe."""
    task = TASKS[table["task"]["kind"]]
    try:
        model: type[BaseModel] = section_of(table["model"]["family"], task.answer)
    except ConfigurationError:
        model = Pretrained
    found: dict[str, Any] = {"task": task, "source": SOURCES[table["source"]["kind"]], "model": model}
    own = {name: each.annotation for name, each in Recipe.model_fields.items() if name not in (*found, "title")}
    return found | own


def _change(world: World, table: Table, rng: Random) -> None:
    """Draw one key anew, or spoil a section."""
    try:
        kinds = sections(table)
    except (ConfigurationError, KeyError, TypeError):
        return  # it is spoiled already
    name = rng.choice([*kinds])
    section = table.get(name)
    spoil = rng.random()
    if spoil < 0.02:
        table[name] = rng.choice((1, "x", [], {}, True))
    elif spoil < 0.03:
        table.pop(name, None)
    elif spoil < 0.05:
        table[rng.choice(("titel", "trian", "x y", "title"))] = rng.choice((1, {"a": 1}, "x"))
    elif isinstance(section, dict):
        known = keys(kinds[name])
        if spoil < 0.08 or not known:
            section[rng.choice(("stepz", "kind", "", "a.b", "ü"))] = rng.choice((1, "x", None))
            return
        key = rng.choice([*known])
        schema, definitions = known[key]
        if key in PATHS and rng.random() < 0.8:
            section[key] = _path(world, rng, schema.get("type") == "array")
        else:
            section[key] = drawn(schema, rng, definitions) if rng.random() < 0.9 else strange(schema, rng, definitions)


def _path(world: World, rng: Random, several: bool) -> Any:
    """Something that can be named where a file is expected."""
    there = [str(path) for path in [*world.data.iterdir(), *(world.root / "runs").iterdir(), *world.exported.values()]]
    path = rng.choice(
        [*there, *there, "nothing.tsv", "my.toml", ".", "/", "/dev/null", "package:nothing", "no/hub", ""]
    )
    return [path, rng.choice(there)] if several else path


def _damaged(text: str, rng: Random) -> str:
    """TOML with a character too much or too little."""
    place = rng.randrange(len(text))
    return text[:place] + rng.choice(("", "=", "[", '"', "\x00", "'''", "\\", "é", "\n")) + text[place + 1 :]
