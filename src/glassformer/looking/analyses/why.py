"""Why this word, and not that one: finds the output that is asked about, and what was read that speaks for it.

An output is a word that was written, a label, the tag of a word, the filling of a gap, or the next word of a text.

R outputs, N tokens that were read
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import torch
from torch import Tensor

from glassformer.errors import InputError
from glassformer.looking.analyses.attribution import Attribution, occlusion
from glassformer.looking.patching import Forced, Looked
from glassformer.looking.points import tells_numbers

NAMED = 12  # words that a sentence lists


@dataclass(frozen=True)
class Output:
    """An answer of a run that can be explained: its tokens, or its label, and where their logits stand."""

    name: str
    tokens: list[int]
    places: list[int]  # of the logits, one for each token; empty: one answer for the whole text
    against: int | None = None  # the token or label that it is compared with
    instead: str | None = None  # how that is called

    @property
    def place(self) -> int | None:
        """Where its first logit stands; None: it is one answer for the whole text."""
        return self.places[0] if self.places else None


def outputs(run: Looked, text: Any, written: Sequence[int] | None = None) -> list[Output]:
    """What a run answers to a text, output by output: words, labels, fillings; of a language model, the text's words.

    The last output of a language model is the word that it would go on with.
    """
    forced = run.forced(text, written)
    return list(_outputs(run, forced, _logits(run, forced)))


def output_of(
    run: Looked, text: Any, word: str | None = None, instead: str | None = None, written: Sequence[int] | None = None
) -> Output:
    """The output that is called `word`, compared with `instead`; without a word, the first, or the next of a text.

    A word is compared with another at the first piece in which they differ.
    """
    forced = run.forced(text, written)
    logits = _logits(run, forced)
    found = list(_outputs(run, forced, logits))
    if not found:
        raise InputError("this run answers nothing to this text that could be explained")
    labels = _labels(run)
    if logits.dim() == 1:
        number = int(logits.argmax()) if word is None else _label(word, labels)
        chosen = Output(labels[number], [number], [])
    else:
        chosen = _named(run, forced, found, word)
    if instead is None:
        return chosen
    if labels:
        return replace(chosen, against=_label(instead, labels), instead=instead)
    return _compared(run, forced, chosen, instead)


def why(
    run: Looked, text: Any, word: str | None = None, instead: str | None = None, written: Sequence[int] | None = None
) -> Attribution:
    """How much each word that was read speaks for an output, and against another: by leaving the words out in turn.

    Without a word there is a row for each output. Of a word in pieces, the mean of their logits is explained; compared
    with another word, the first piece in which they differ counts. See `occlusion`.
    """
    asked = word is not None or instead is not None
    some = [output_of(run, text, word, instead, written)] if asked else outputs(run, text, written)
    if not some:
        raise InputError("this run answers nothing to this text that could be explained")
    tokens = [token for each in some for token in each.tokens]
    places = [place for each in some for place in each.places] or None
    found = occlusion(run, text, tokens, places, some[0].against, written).words()

    def mean(x: Tensor) -> Tensor:
        return torch.stack([each.mean(dim=0) for each in torch.split(x, [len(each.tokens) for each in some])])

    return replace(
        found,
        values=mean(found.values),
        outputs=mean(found.outputs),
        baseline=mean(found.baseline),
        rows=[each.name for each in some],
        against=some[0].instead,
    )


@torch.no_grad()
def _logits(run: Looked, forced: Forced) -> Tensor:
    """The logits of a text, (T, V) or of one answer (V)."""
    if tells_numbers(run):
        raise InputError("words and labels can be explained, and this model answers with numbers")
    return run.model(*forced.inputs)[0].float().cpu()  # type: ignore[no-any-return]


def _labels(run: Any) -> list[str]:
    return list(getattr(run, "labels", None) or [])


def _tokenizer(run: Any) -> Any:
    return getattr(run, "target", None) or run.tokenizer


def _outputs(run: Any, forced: Forced, logits: Tensor) -> Iterator[Output]:
    """What a run answers, by what it is: it writes, gives one label, tags words, fills gaps, or goes on."""
    labels = _labels(run)
    if forced.written is not None:
        yield from _words(run, forced.written, 0)
    elif logits.dim() == 1:
        yield Output(labels[int(logits.argmax())], [int(logits.argmax())], [])
    elif labels:
        (stack,) = forced.words
        texts, special = forced.tokens[stack][0], run.tokenizer.special
        read: list[int] = forced.inputs[0][0].tolist()
        for group in forced.words[stack][0]:
            if read[group[-1]] not in special:
                name = "".join(texts[at].removeprefix("##") for at in group).strip("▁")
                yield Output(name, [int(logits[group[-1]].argmax())], [group[-1]])
    elif logits.shape[-1] < run.tokenizer.size:
        raise InputError("this run points at places in the text: tokens or labels can be explained, places cannot")
    else:
        yield from _of_text(run, forced.inputs[0][0].tolist(), logits)


def _of_text(run: Any, read: list[int], logits: Tensor) -> Iterator[Output]:
    """The fillings of a text's gaps; of a language model, the text's words and the next one."""
    logits = logits[:, : run.tokenizer.size].clone()
    logits[:, list(run.tokenizer.special)] = -torch.inf
    likeliest: list[int] = logits.argmax(dim=-1).tolist()
    if run.attention_kind == "decoder.self":
        yield from _words(run, read[1:], 0)
        yield from _words(run, likeliest[-1:], len(read) - 1)
        return
    gaps = [at for at, token in enumerate(read) if token == run.tokenizer.mask]
    if not gaps:
        raise InputError("there is no gap to explain in this text: put [MASK] in place of a word")
    for gap in gaps:
        yield from _words(run, [likeliest[gap]], gap)


def _words(run: Any, tokens: Sequence[int], first: int) -> Iterator[Output]:
    """Words and where their logits stand, if the first token's stands at `first`."""
    tokenizer = _tokenizer(run)
    texts = tokenizer.tokens(tokens)
    for group in tokenizer.words(tokens):
        name = "".join(texts[at].removeprefix("##") for at in group).strip("▁") or texts[group[0]]
        yield Output(name, [tokens[at] for at in group], [first + at for at in group])


def _named(run: Any, forced: Forced, found: Sequence[Output], word: str | None) -> Output:
    """The output that is called so; of a language model, which can go on with any word, the next one."""
    goes_on = forced.written is None and not _labels(run)
    if word is None:
        return found[-1] if goes_on and run.attention_kind == "decoder.self" else found[0]
    word = word.strip()
    for each in found:
        if each.name == word:
            return each
    if goes_on and word:
        last = found[-1]
        tokens = _spelled(run, forced, last, word)
        return Output(word, tokens[:1], last.places[:1])
    names = list(dict.fromkeys(each.name for each in found))
    near = get_close_matches(word, names, n=1)
    known = f"did you mean {near[0]}?" if near else f"there is {', '.join(names[:NAMED])}"
    raise InputError(f'there is no "{word}" among what the run answers: {known}')


def _label(name: str, labels: Sequence[str]) -> int:
    if name not in labels:
        near = get_close_matches(name, labels, n=1)
        known = f"did you mean {near[0]}?" if near else f"there is {', '.join(labels[:NAMED])}"
        raise InputError(f'there is no label "{name}": {known}')
    return labels.index(name)


def _before(run: Any, forced: Forced, output: Output) -> list[int]:
    """What was written, or read, before an output."""
    if forced.written is not None:
        return forced.written[: output.places[0]]
    read: list[int] = forced.inputs[0][0].tolist()
    return read[: output.places[0] + (run.attention_kind == "decoder.self")]


def _spelled(run: Any, forced: Forced, output: Output, word: str) -> list[int]:
    """The tokens of a word in the place of an output, with the space before it that the output has."""
    tokenizer, before = _tokenizer(run), _before(run, forced, output)
    begin, whole = (tokenizer.decode(each) for each in (before, [*before, *output.tokens]))
    space = " " if begin and (whole[len(begin) :][:1] == " " or tokenizer.tokens(output.tokens)[0][:1] == "▁") else ""
    both: list[int] = tokenizer.encode(f"{begin}{space}{word}")
    alone = [token for token in before if token not in tokenizer.special]
    tokens = both[len(alone) :] if both[: len(alone)] == alone else tokenizer.encode(f"{space}{word}")
    if not tokens or not word:
        raise InputError("an empty text is no word")
    if any(token in tokenizer.special for token in tokens):
        raise InputError(f'"{word}" is not in the vocabulary of this run')
    return tokens


def _compared(run: Any, forced: Forced, output: Output, instead: str) -> Output:
    """An output beside another word in its place: both at the first piece in which they differ."""
    other = _spelled(run, forced, output, instead.strip())
    after = [*output.tokens, *(forced.written or [])[output.places[-1] + 1 :]] if forced.written else output.tokens
    if forced.written is not None:
        after = [*after, run.special.end]
    for number, (token, against) in enumerate(zip(after, other, strict=False)):
        if token != against:
            place = output.places[0] + number
            return replace(output, tokens=[token], places=[place], against=against, instead=instead.strip())
    raise InputError(f'"{output.name}" begins with all of "{instead.strip()}": name a word that begins otherwise')
