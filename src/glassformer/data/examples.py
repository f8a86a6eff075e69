"""Examples: what sources give and tasks learn from. Each is a named tuple; a line of JSON holds one."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from glassformer.errors import InputError, RunError
from glassformer.files import regular
from glassformer.writing import replacing

if TYPE_CHECKING:
    from PIL import Image

Pixels = NDArray[np.uint8]  # (S, S, C)
MOST_PIXELS = 1 << 26  # in an image: a small file may unpack to very many
RUNS_PROGRAMS = {"EPS"}  # formats that Pillow has another program read
Example = TypeVar("Example", bound=tuple[Any, ...])


class Columns(NamedTuple):
    """Texts side by side: a source and its target; a text, or two, and a label."""

    cells: tuple[str, ...]


class Document(NamedTuple):
    """A text by itself."""

    text: str


class AnswerSpan(NamedTuple):
    """An answer, and the character of its context at which it starts."""

    text: str
    start: int


class Question(NamedTuple):
    """A question, the text that it is about, and the answers that people gave; none: the text has no answer."""

    question: str
    context: str
    answers: tuple[AnswerSpan, ...] = ()


class Picture(NamedTuple):
    """An image, as a file or as pixels, its label, and its name: `cat/1.png`."""

    image: Path | Pixels
    label: str
    name: str


class Series(NamedTuple):
    """Numbers over time: a row for each step, a number for each column, None where one is missing.

    Steps are equally far apart. `times` are seconds since 1970 where it is `dated`, else numbers of the user's; empty:
    steps are only counted. `labels` say what happens at each step, if that is known.
    """

    name: str
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]  # (T, C)
    times: tuple[float, ...] = ()
    labels: tuple[str | None, ...] = ()
    dated: bool = False

    def part(self, first: int, last: int) -> Series:
        """The steps from `first` to before `last`."""
        rows = slice(first, last)
        return self._replace(values=self.values[rows], times=self.times[rows], labels=self.labels[rows])


class Captioned(NamedTuple):
    """An image, or the images of a film, as files or as pixels; what people say of it; and its name."""

    images: tuple[Path | Pixels, ...]
    captions: tuple[str, ...]
    name: str


class BadRow(InputError):  # noqa: N818  # it is counted, not shown as an error
    """A row that is no example of a task: the kind of problem, for counting, and what is wrong with it."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


def texts_in(value: Any) -> Iterator[str]:
    """All texts of an example."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from texts_in(each)


def with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """An example with all its texts changed."""
    if isinstance(value, str):
        return change(value)
    if not isinstance(value, tuple):
        return value
    changed = [with_texts(each, change) for each in value]
    return type(value)(*changed) if hasattr(value, "_fields") else tuple(changed)


def to_line(example: tuple[Any, ...]) -> str:
    """An example as a line of JSON."""
    return json.dumps(_plain(example), ensure_ascii=False) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: _plain(each) for name, each in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return png_of(value) if isinstance(value, np.ndarray) else value


def from_line(kind: type[Example], line: str | bytes) -> Example:
    """The example that `to_line` wrote; KeyError, TypeError or ValueError where it is none."""
    made: Example = _reader(kind)(json.loads(line))
    return made


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """What makes a value of JSON a value of some type."""
    if hasattr(kind, "_fields"):
        readers = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}
        return lambda row: kind(**{name: read(row[name]) for name, read in readers.items()})
    if get_origin(kind) is tuple:
        inner = _reader(get_args(kind)[0])
        return lambda row: tuple(inner(each) for each in row)
    if get_origin(kind) is np.ndarray:
        return _pixels

    def checked(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"{value!r} is not of type {kind.__name__}")
        return value

    return checked


def png_of(pixels: Pixels) -> str:
    """An image as a PNG file, in base64."""
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels).save(held, "png")
    return base64.b64encode(held.getvalue()).decode()


def _pixels(text: str) -> Pixels:
    with open_image(io.BytesIO(base64.b64decode(text)), "an image") as image:
        pixels = np.asarray(image, np.uint8)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def open_image(file: Path | io.BytesIO, name: str, formats: tuple[str, ...] = ()) -> Image.Image:
    """An image whose pixels are yet to be read; one with too many of them, as a bomb has, is refused.

    It has one of some formats, PNG for example; without them, any that Pillow reads by itself.
    """
    from PIL import Image

    Image.init()
    try:
        image = Image.open(file, formats=formats or [each for each in Image.OPEN if each not in RUNS_PROGRAMS])
    except Image.DecompressionBombError:
        raise too_large(name) from None
    try:
        check_pixels(image, name)
    except InputError:
        image.close()
        raise
    return image


def check_pixels(image: Image.Image, name: str) -> None:
    """Refuse an image with too many pixels, before they are read."""
    if image.width * image.height > MOST_PIXELS:
        raise too_large(name)


def too_large(name: str) -> InputError:
    """What is said of an image with too many pixels."""
    return InputError(f"{name}: has more than {MOST_PIXELS:,} pixels: make it smaller")


def write_examples(path: Path, examples: Iterable[tuple[Any, ...]]) -> None:
    """Write examples to a file, a line each, at once."""
    with replacing(path) as new, new.open("w", encoding="utf-8", newline="") as file:
        file.writelines(map(to_line, examples))


def read_examples(
    path: Path, kind: type[Example], upgrade: Callable[[dict[str, Any], int], Example] | None = None
) -> list[Example]:
    """The examples in a file that `write_examples` made; rows of Glassformer 0.1 are upgraded."""
    try:
        rows = [json.loads(line) for line in regular(path).read_text(encoding="utf-8").split("\n") if line]
        if upgrade is not None and rows and rows[0].keys() == {"source", "target"} != {*get_type_hints(kind)}:
            return [upgrade(row, number) for number, row in enumerate(rows)]
        return [_reader(kind)(row) for row in rows]
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from None
    except KeyError as error:
        raise RunError(f"{path} is damaged: an example lacks {error}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from None


def from_first_version(row: dict[str, Any], reads: tuple[type, ...], image: Callable[[], Pixels]) -> Any:
    """What a row of Glassformer 0.1 holds, as sources give it today to a task that reads some types of examples."""
    source, target = str(row["source"]), str(row["target"])
    texts = source.split("\ufdd0")  # which stood between two texts
    if Picture in reads:
        return Picture(image(), target, source)
    if Document in reads:
        return Document(source)
    if Question in reads:
        answers = tuple(AnswerSpan(each["text"], each["start"]) for each in json.loads(target))
        return Question(texts[0], texts[1], answers)
    return Columns((*texts, target))
