"""The parts that every model is built of. They take numbers and other parts, never a config object."""

from glassformer.parts.alignment import AdditiveScore, Alignment, MultiplicativeScore
from glassformer.parts.attention import (
    MultiHeadAttention,
    attention,
    cosine_similarity,
    dot_similarity,
    fused_attention,
    scaled_dot_similarity,
    simple_self_attention,
)
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.cache import Cache, DecoderState, KeyValues
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import FeedForward, GatedFeedForward, gelu, gelu_tanh, relu, silu
from glassformer.parts.lora import LoRA, LoRALinear, adapt, adapters, merge, merged, unmerge, use, using
from glassformer.parts.masks import Mask, causal, documents, pad, padding, window
from glassformer.parts.norms import BatchNorm, LayerNorm, PaddingAware, Placement, PostNorm, PreNorm, RMSNorm
from glassformer.parts.packed import PackedLinear, pack
from glassformer.parts.positions import ALiBi, Learned, NoPositions, RelativeBias, Rotary, Sinusoidal
from glassformer.parts.quantised import Int8Linear, quantise
from glassformer.parts.recurrent import GRU, LSTM, RNN, Cell, Recurrent
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder, RecurrentState

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "ALiBi",
    "AdditiveScore",
    "Alignment",
    "BatchNorm",
    "Cache",
    "Cell",
    "Decoder",
    "DecoderBlock",
    "DecoderState",
    "Dropout",
    "Embedding",
    "Encoder",
    "EncoderBlock",
    "FeedForward",
    "GatedFeedForward",
    "Head",
    "Int8Linear",
    "KeyValues",
    "LayerNorm",
    "Learned",
    "LoRA",
    "LoRALinear",
    "Mask",
    "MultiHeadAttention",
    "MultiplicativeScore",
    "NoPositions",
    "PackedLinear",
    "PaddingAware",
    "Placement",
    "PostNorm",
    "PreNorm",
    "RMSNorm",
    "Recurrent",
    "RecurrentDecoder",
    "RecurrentEncoder",
    "RecurrentState",
    "RelativeBias",
    "Rotary",
    "Sinusoidal",
    "TiedHead",
    "adapt",
    "adapters",
    "attention",
    "causal",
    "cosine_similarity",
    "documents",
    "dot_similarity",
    "fused_attention",
    "gelu",
    "gelu_tanh",
    "merge",
    "merged",
    "pack",
    "pad",
    "padding",
    "quantise",
    "relu",
    "scaled_dot_similarity",
    "silu",
    "simple_self_attention",
    "unmerge",
    "use",
    "using",
    "window",
]
