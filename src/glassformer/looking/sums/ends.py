"""The workings of both ends of a model: embeddings and positions, what leaves a stack, logits and probabilities.

T tokens, D width, V vocabulary or labels
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from glassformer.errors import InputError
from glassformer.looking.sums.place import Place, parts_in_order
from glassformer.looking.sums.recurrent import final_state
from glassformer.looking.sums.steps import Step, Term, apply, linear_terms, norm_steps, softmax_steps, step
from glassformer.parts.embeddings import TiedHead
from glassformer.parts.heads import Classifier
from glassformer.parts.patches import FilmEmbedding, PatchEmbedding
from glassformer.parts.positions import Learned, Waves
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder, the_end
from glassformer.parts.values import NumberHead, ValueEmbedding


def embedding_steps(place: Place) -> list[Step]:
    """A row of the table, times its scale, and the segment's vector where there is one; of what is no text, its own."""
    embedding: Any = getattr(place.model, place.stack).embedding
    if isinstance(embedding, PatchEmbedding | FilmEmbedding):
        return _patch_steps(place, embedding.patches if isinstance(embedding, FilmEmbedding) else embedding)
    if isinstance(embedding, ValueEmbedding):
        return _value_steps(place, embedding)
    token = int(place.trace[f"{place.stack}.tokens"][place.sentence, place.token])
    row = embedding.weight[token].detach().double().cpu()
    terms = [Term(f"row {token} of the table", (float(row[place.at]), embedding.scale))]
    if embedding.segments is not None:
        rest = place.vector(place.point) - row * embedding.scale  # (D)
        table = embedding.segments.detach().double().cpu()
        segment = int((table - rest).abs().sum(dim=-1).argmin())
        terms.append(Term(f"segment {segment}", (float(table[segment, place.at]),)))
    return [step("embedding", terms, ("table", "scale"))]


def _patch_steps(place: Place, embedding: PatchEmbedding) -> list[Step]:
    """The class token in front of an image's patches, or one of them; in a film each image has its own."""
    frame, inside = divmod(place.token, 1 + (embedding.image // embedding.patch) ** 2)
    if inside == 0:
        number = float(embedding.class_token.detach()[0, 0, place.at])
        return [step("class token", [Term("trained vector", (number,))])]
    patch = place.token - 1 - frame  # without the class tokens
    vector = place.vector(f"{place.stack}.patches", patch)
    return [step("patch", [Term(f"patch {patch}, projected", (float(vector[place.at]),))])]


def _value_steps(place: Place, embedding: ValueEmbedding) -> list[Step]:
    """Each column of a step of a series, standardised, and whether it is missing; then the projection of both."""
    values = place.vector(f"{place.stack}.values")  # (C)
    mean, deviation = embedding.mean.double().cpu(), embedding.deviation.double().cpu()
    found, missing = [], values.isnan()
    for column in range(embedding.columns):
        scale = 1 / float(deviation[column])
        terms = [Term("value", (float(values[column]), scale)), Term("− mean", (-float(mean[column]), scale))]
        found.append(step(f"column {column}, standardised", [] if missing[column] else terms, ("", "1/deviation")))
    names = [f"{what}column {column}" for what in ("", "missing: ") for column in range(embedding.columns)]
    both = torch.cat((torch.tensor([each.value for each in found]).double(), missing.double()))  # (2 C)
    return [*found, step("W x + b", linear_terms(embedding.projection, both, place.at, names), ("x", "W"))]


def position_steps(place: Place) -> list[Step]:
    """The vector of a position: a wave, or a row of a trained table; in a film, the frame's is added."""
    embedding: Any = getattr(place.model, place.stack).embedding
    if isinstance(embedding, FilmEmbedding):
        return _film_position_steps(place, embedding)
    positions: Any = embedding.positions
    if isinstance(positions, Waves):
        half = positions.width // 2
        is_sine = place.at % 2 == 0 if positions.interleaved else place.at < half
        pair = place.at // 2 if positions.interleaved else place.at % half
        frequency = positions.base ** (-2 * pair / positions.width)
        name = f"{'sin' if is_sine else 'cos'}(position / {positions.base:g}^({2 * pair}/{positions.width}))"
        term = Term("position", (float(place.token), frequency))
        return [step(name, [term], ("position", "frequency"), torch.sin if is_sine else torch.cos)]
    if isinstance(positions, Learned | Tensor):
        number = float(place.vector(place.point)[place.at])
        return [step("trained position", [Term(f"row {place.token} of the table of positions", (number,))])]
    raise InputError(f"the positions {type(positions).__name__} are not known here")


@torch.no_grad()
def _film_position_steps(place: Place, film: FilmEmbedding) -> list[Step]:
    frame, inside = divmod(place.token, 1 + (film.image // film.patch) ** 2)
    nothing = torch.zeros(1, 1 + (film.image // film.patch) ** 2, film.width).to(film.patches.class_token)
    within = film.patches.place(nothing)[0, inside, place.at]
    moment = film.moments(nothing.new_zeros(1, film.frames, film.width), None)[0, frame, place.at]
    terms = [Term(f"position {inside} of the image", (float(within),)), Term(f"frame {frame}", (float(moment),))]
    return [step("position + frame", terms)]


def begin_steps(place: Place) -> list[Step]:
    """What enters the first block or layer: embedding plus position, then the norm where there is one."""
    embedding: Any = getattr(place.model, place.stack).embedding
    x = place.vector(f"{place.stack}.embedding")
    terms = [Term("embedding", (float(x[place.at]),))]
    if f"{place.stack}.positions" in place.trace.names:
        position = place.vector(f"{place.stack}.positions")
        x, terms = x + position, [*terms, Term("position", (float(position[place.at]),))]
    steps = norm_steps(getattr(embedding, "norm", nn.Identity()), x, place.at)
    return [step("embedding + position" if len(terms) > 1 else "embedding", terms), *steps]


def stack_output_steps(place: Place) -> list[Step]:
    """What leaves a stack: the final norm of the stream; of a recurrent stack, the last states, or what was read."""
    stack: Any = getattr(place.model, place.stack)
    if isinstance(stack, RecurrentEncoder | RecurrentDecoder):
        return [step("as it is", [Term("last layer", (float(_last(place, stack)[place.at]),))])]
    x = place.vector(f"{place.stack}.{len(stack.blocks) - 1}.after")
    return norm_steps(stack.norm, x, place.at) or [step("the stream", [Term("stream", (float(x[place.at]),))])]


def _last(place: Place, stack: Any) -> Tensor:
    """What a recurrent stack gives at a token, (D)."""
    if isinstance(stack, RecurrentDecoder) and stack.attention is not None:
        return place.vector(f"{place.stack}.cross.output")
    top, ways = stack.layers.fused.num_layers - 1, ("", ".backward")[: stack.layers.directions]
    return torch.cat([place.vector(f"{place.stack}.{top}{way}.state") for way in ways])


def logit_steps(place: Place) -> list[Step]:
    """What the head gives to a token of the vocabulary, or to a label."""
    head = place.model.head
    before, last = split_head(head)
    scored = step("W x + b", linear_terms(last, head_input(place, before), place.at), ("x", "W"))
    if not isinstance(head, NumberHead):
        return [scored]
    mean, deviation = (float(each[place.at]) for each in (head.mean, head.deviation))
    return [
        scored,
        step("in the units of the data", [Term("W x + b", (scored.value, deviation)), Term("mean", (mean,))]),
    ]


def split_head(head: nn.Module) -> tuple[list[nn.Module], nn.Module]:
    """The parts of a head before its last linear one, and that."""
    if isinstance(head, Classifier | NumberHead):
        return [head.pool], head.scores
    *before, last = parts_in_order(head)
    if not isinstance(last, nn.Linear | TiedHead):
        raise InputError(f"the head {type(head).__name__} is not known here")
    return before, last


def head_input(place: Place, before: list[nn.Module]) -> Tensor:
    """What the last linear part of the head reads, (D)."""
    name = "decoder" if hasattr(place.model, "decoder") else "encoder"
    stack = getattr(place.model, name)
    if isinstance(stack, RecurrentEncoder) and stack.give is the_end:
        return final_state(place, stack.layers, stack.layers.fused.num_layers - 1, "state")
    x = place.table(f"{name}.output")[None]  # (1, T, D)
    for part in before:
        x = apply(part, x)
    return x[0] if x.dim() == 2 else x[0, place.token]


def probability_steps(place: Place) -> list[Step]:
    """The softmax of the logits."""
    if isinstance(place.model.head, NumberHead):
        raise InputError("this model answers with numbers, which have no probabilities")
    logits = place.vector("logits")
    *_, axis = place.trace.kept.axes_of("logits")
    return softmax_steps(logits, place.names("logits", axis), place.at)
