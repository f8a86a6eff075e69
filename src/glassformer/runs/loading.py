"""Runs from folders: those that were trained, and checkpoints from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from glassformer.data import Assets, Report
from glassformer.data.reading import read_examples_of
from glassformer.decoding import Ensemble, Mean
from glassformer.errors import InputError
from glassformer.interop import huggingface, load_lora
from glassformer.interop import load as load_checkpoint
from glassformer.interop.checkpoints import checkpoint_labels
from glassformer.interop.generation import decode_keys
from glassformer.interop.huggingface import KEPT
from glassformer.interop.special_tokens import read_special_tokens
from glassformer.models import EncoderDecoder
from glassformer.models.family import longest
from glassformer.parts import merged
from glassformer.recipe import Data, Decode, Recipe, Train
from glassformer.registry import SOURCES, TASKS
from glassformer.runs.ensembles import MEAN, ensemble
from glassformer.runs.folder import check_finite, check_whole, read_run
from glassformer.runs.shipping import shipped
from glassformer.tasks.labels import number_of
from glassformer.tasks.run import Run
from glassformer.tasks.task import Task
from glassformer.training import resolve
from glassformer.writing import IMPORT, read_json

UNLIMITED = 2**31 - 1
LABELLED = ("classes", "tags", "image-classes")  # answers that have labels


def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    adapter: str | Path | None = None,
    checkpoint: str | int | None = None,
    mean: Mean | None = None,
) -> Run:
    """The run in a folder, or one that ships by name; the LoRA weights of an `adapter` folder are merged into it.

    Several folders are an ensemble, by the `mean` of their "probabilities" or "log-probabilities". `checkpoint` is a
    step, "best" or "last", of each. Of an unfinished run, the checkpoint is used that training would end with.
    """
    paths = [path] if isinstance(path, str | Path) else [*path]
    if adapter is not None and len(paths) > 1:
        raise InputError(f"an adapter is for the model of one run, but {len(paths)} runs are named: name one")
    if mean is not None and len(paths) == 1:
        raise InputError("the mean is that of several runs, but one is named: leave the mean out, or name more runs")
    runs = [_load(Path(each), device, adapter, checkpoint) for each in paths]
    return runs[0] if len(runs) == 1 else ensemble(runs, mean or MEAN)


def _load(path: Path, device: str, adapter: str | Path | None, checkpoint: str | int | None) -> Run:
    if not path.exists() and (model := shipped().get(str(path))) is not None:
        path = model.folder
    imported = (path / IMPORT).is_file()
    if imported and checkpoint is not None:
        raise InputError(f"{path} was imported and has no checkpoints: leave out the checkpoint")
    run = _imported(path) if imported else _trained(path, checkpoint)
    run.model = run.model.to(resolve(device))
    if adapter is not None:
        run.model = merged(load_lora(run.model, adapter)).eval()
    check_finite(run.model, path if adapter is None else f"{path} with {adapter}")
    return run


def _trained(path: Path, checkpoint: str | int | None) -> Run:
    found = read_run(path)
    run: Run = found.recipe.task.Run(found.recipe, found.load_model(checkpoint), found.assets(), path)
    return run


def _imported(path: Path) -> Run:
    """A checkpoint from elsewhere in use. Texts are read as they are: its tokenizer does what is needed."""
    check_whole(path)
    model = load_checkpoint(path)
    kept = read_json(path / KEPT, dict[str, dict[str, Any]]) if (path / KEPT).is_file() else {}
    task = _task_for(model, str(path), kept.get("task"))
    special = read_special_tokens(path) if task.writes else None
    labels = checkpoint_labels(path) if task.answer in LABELLED else []
    tokenizers = huggingface.read_tokenizers(path) if task.tokenizers else ()
    assets = Assets(tokenizers, labels, special_tokens=special)
    decode = decode_keys(path, isinstance(model, EncoderDecoder)) if task.writes else {}
    run: Run = task.Run(_recipe(task, model, Decode(**decode), kept.get("data")), model, assets, path)
    return run


def _task_for(model: nn.Module, name: str, options: Mapping[str, Any] | None = None) -> Task:
    """The task that a checkpoint's model can be used for, with some options."""
    for kind, task in TASKS.items():
        if task.adopts(model):
            return task(kind=kind, **options or {})  # type: ignore[no-any-return]
    raise InputError(f"{name}: no task can use this model: use it from Python, with glassformer.interop.load")


def _recipe(task: Task, model: nn.Module, decode: Decode, kept: Mapping[str, Any] | None = None) -> Recipe:
    """What a recipe would say of a model that was not trained by one."""
    most = longest(model.blueprint) or UNLIMITED  # type: ignore[arg-type]
    if kept and "max_tokens" in kept:
        most = min(most, int(kept["max_tokens"]))
    data = Data(normalise="none", strip=False, max_tokens=most)
    nothing: Any = None
    return Recipe.model_construct(
        title="", task=task, source=nothing, data=data, model=nothing, decode=decode, train=Train()
    )


def import_run(source: str | Path, folder: Path, force: bool = False) -> Run:
    """Make a run folder of a checkpoint: a folder in Hugging Face's layout, or a name on the hub.

    Only with `force` is something written over.
    """

    def choose(checkpoint: huggingface.Checkpoint) -> huggingface.Chosen:
        task = _task_for(checkpoint.model, str(source))
        check_finite(checkpoint.model, source)
        return task.imported(checkpoint), task.kept_of(checkpoint)

    huggingface.import_checkpoint(source, folder, force, choose)
    return load(folder, "cpu")


def export_run(run: Run, folder: Path, force: bool = False) -> str:
    """Write a run in Hugging Face's layout. Returns what `transformers` opens it with."""
    if isinstance(run.model, Ensemble):
        raise InputError("an ensemble is no single model, and cannot be exported: export each of its runs")
    origin = run.path if run.path is not None and (run.path / IMPORT).is_file() else None
    tokenizers = list(dict.fromkeys(run.assets.tokenizers))
    return huggingface.export(run.model, tokenizers, run.exported(), folder, origin, force)


def examples_in(path: Path, run: Run) -> list[Any]:
    """The examples in a file of the user's, as the run's task takes them; a label it does not know is refused."""
    section = run.task.file_source(str(path), run.recipe)
    source, report, found = SOURCES[section["kind"]](**section), Report(), []
    raw = run.reads_images  # such a run reads what sources give, and leaves out what cannot be read
    read = source.read("train", Path.cwd(), report) if raw else read_examples_of(source, run.recipe, Path.cwd(), report)
    for example, place in read:
        for label in run.task.labels_of(example):
            number_of(label, run.labels, f"{place}: ")
        found.append(example)
    if report.examples:
        raise InputError(report.examples[0])
    scorable: list[Any] = run.task.scorable(found, run.assets)
    if not scorable:
        raise InputError(f"{path}: holds no example")
    return scorable
