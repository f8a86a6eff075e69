"""The parts that every model is built of. They take numbers and other parts, never a config object."""

# ruff: noqa: F401
# mypy: implicit-reexport

from glassformer.parts.alignment import AdditiveScore, Alignment, MultiplicativeScore, ScoreKind
from glassformer.parts.attention import (
    MultiHeadAttention,
    attention,
    fused_attention,
    simple_self_attention,
)
from glassformer.parts.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from glassformer.parts.builder import BlockBuilder
from glassformer.parts.cache import Cache, DecoderState, DecodingState, KeyValues
from glassformer.parts.dropout import Dropout
from glassformer.parts.embeddings import Embedding, Head, TiedHead
from glassformer.parts.feedforward import Activation, FeedForward, GatedFeedForward, gelu, gelu_tanh, relu, silu
from glassformer.parts.inference import Int8Linear, PackedLinear, pack, quantise
from glassformer.parts.lora import LoRA, LoRALinear, adapt, adapters, merge, merged, unmerge, use, using
from glassformer.parts.masks import Mask, causal, documents, pad, padding, window
from glassformer.parts.named import Named
from glassformer.parts.norms import BatchNorm, LayerNorm, Norm, PostNorm, PreNorm, Residual, RMSNorm, UnpaddedNorm
from glassformer.parts.patches import FilmEmbedding, PatchEmbedding
from glassformer.parts.positions import ALiBi, Learned, NoPositions, RelativeBias, Rotary, Sinusoidal
from glassformer.parts.recurrent import GRU, LSTM, RNN, Cell, CellKind, Recurrent
from glassformer.parts.recurrent_stacks import RecurrentDecoder, RecurrentEncoder
from glassformer.parts.schemes import Positions, Scheme, scheme_of
from glassformer.parts.similarity import (
    Similarity,
    SimilarityKind,
    UnitLength,
    cosine_similarity,
    dot_similarity,
    scaled_dot_similarity,
)
from glassformer.parts.values import NumberHead, ValueEmbedding
