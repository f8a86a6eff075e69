"""How steps are computed on this device: whether they are captured and compiled, and in which shapes batches come."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from torch import nn

from glassformer.data.planning import Examples, Grid, Shape, stream_for
from glassformer.models import EncoderDecoder
from glassformer.parts.attention import MultiHeadAttention
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.embeddings import Embedding
from glassformer.parts.norms import BatchNorm
from glassformer.parts.positions import Learned, Rotary, reserve
from glassformer.parts.recurrent import Recurrent
from glassformer.parts.short_attention import LONGEST, TRITON, WIDEST
from glassformer.training.devices import in_16_bits
from glassformer.training.distribution import Distribution

if TYPE_CHECKING:
    from glassformer.recipe import Train

WORTH_COMPILING = 50_000_000  # padded tokens of one side that a training reads


def captures(options: Train, distribution: Distribution, model: nn.Module) -> bool:
    """Whether steps become CUDA graphs: on one GPU, with the kernels that leave padding out of the loss.

    Recurrent layers ask the host how long each text is, and a captured batch is filled up with rows of nothing, which
    would enter the statistics of batch norms.
    """
    one = bool(options.compile) and distribution.device.type == "cuda" and distribution.world == 1 and TRITON
    return one and not any(isinstance(part, Recurrent | nn.RNNBase | BatchNorm) for part in model.modules())


def compiles(options: Train, captured: bool) -> bool:
    """Whether blocks are compiled: as the recipe says; by default, where captured steps are to save more than it takes.

    Compiling takes 25 s when nothing is cached, and saves 3 ms of a step of 4,096 tokens and 12 ms of 32,768 (H200).
    """
    if isinstance(options.compile, bool):
        return options.compile
    tokens = options.accumulate * options.batch_tokens * options.steps
    return captured and (tokens >= WORTH_COMPILING if options.minutes is None else options.minutes >= 5)


def compiler_failed(error: RuntimeError) -> bool:
    """Whether PyTorch has found no way to compile, as without a C++ compiler; it has loaded its own if it tried."""
    known = sys.modules.get("torch._dynamo.exc")
    return known is not None and isinstance(error, known.TorchDynamoException)


def shape_for(
    options: Train, distribution: Distribution, model: nn.Module, pairs: Examples, packs: bool
) -> Shape | None:
    """The shape that captured steps are for; None where steps are taken one by one.

    A stream, where the task packs, and the kernels and the model's positions can; or else a grid.
    """
    if not captures(options, distribution, model):
        return None
    if packs and packable(in_16_bits(options.precision, distribution.device), model):
        stream = stream_for(pairs, options.batch_tokens)
        if stream.longest <= LONGEST and reserve(model.modules(), stream.longest):
            return stream
    return grid_of(options, model)


def packable(bf16: bool, model: nn.Module) -> bool:
    """Whether all attention of a model has the kernel that keeps packed sentences apart.

    Parts of other packages may mix tokens in ways of their own; and only positions of a sentence's own tokens begin
    anew with it, not those of a source that it attends to.
    """
    if not bf16 or type(model) is not EncoderDecoder:
        return False
    encoder, decoder = model.encoder, model.decoder
    if type(encoder) is not Encoder or type(decoder) is not Decoder or decoder.mask.window is not None:
        return False
    known = {Encoder: EncoderBlock, Decoder: DecoderBlock}
    if any(type(block) is not known[type(stack)] for stack in (encoder, decoder) for block in stack.blocks):
        return False
    across = [part for block in decoder.blocks for part in _attention(block.cross_attention)]  # type: ignore[arg-type]
    return (
        isinstance(encoder.embedding, Embedding)
        and all(part.positions is None for part in across)
        and all(
            not part.dropout
            and part.heads == part.key_value_heads
            and part.head_width <= WIDEST
            and (part.positions is None or isinstance(part.positions, Rotary))
            for part in _attention(model)
        )
    )


def _attention(module: nn.Module | None) -> list[MultiHeadAttention]:
    """All attention in a module."""
    return [] if module is None else [part for part in module.modules() if isinstance(part, MultiHeadAttention)]


def grid_of(options: Train, model: nn.Module) -> Grid:
    """The shapes of batches that are captured: small batches cost little, so that their padding costs less."""
    longest = min((part.length for part in model.modules() if isinstance(part, Learned)), default=None)
    return Grid(options.batch_tokens, multiple=4 if options.batch_tokens <= 8192 else 2, longest=longest)
