"""Refusals: what a page is told, in one sentence, when it cannot have what it asked for."""

from __future__ import annotations

import logging

from pydantic import ValidationError

from glassformer.errors import ConfigurationError, GlassformerError, InputError
from glassformer.writing import sentence

LOG = logging.getLogger("glassformer.studio")
NO_MEMORY = "there is not enough memory for this: take a shorter text, or a narrower beam"


class Refused(Exception):  # noqa: N818  (it is an answer)
    """A question without an answer: a status of HTTP, and why in a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status, self.sentence = status, sentence


def check_size(size: int, most: int) -> None:
    """Refuse a question of too many bytes."""
    if size > most:
        raise Refused(413, f"the question has {size:,} bytes, and at most {most:,} are read: take a shorter text")


def refusal_of(error: BaseException) -> Refused:
    """The refusal that an error is. What is not of ours is logged, without the text that was asked about."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, ValidationError):
        return Refused(422, sentence(error))
    if isinstance(error, InputError | ConfigurationError):
        return Refused(400, str(error))
    if isinstance(error, GlassformerError):
        return Refused(500, str(error))
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error) or "out of memory" in str(error):
        return Refused(503, NO_MEMORY)
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else f" at {place.tb_frame.f_code.co_filename.rpartition('/')[2]}:{place.tb_lineno}"
    LOG.error("%s%s", type(error).__name__, where)
    return Refused(500, f"this went wrong inside Glassformer ({type(error).__name__}{where}): please report it")
