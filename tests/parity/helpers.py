"""Weights of ours, copied into the ecosystem's own modules.

B batch, T target length, S source length, D width, V vocabulary
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor, nn

from glassformer.models import EncoderDecoder, transformer
from glassformer.parts import (
    Decoder,
    Encoder,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    Residual,
    Sinusoidal,
    TiedHead,
    gelu,
    relu,
    scheme_of,
    silu,
)

PAD, START, END, VOCABULARY = 1, 3, 2, 32
END_BIAS = 6.5
ACTIVATIONS = {"relu": relu, "gelu": gelu, "swish": silu}


def _copy(pairs: dict[nn.Module, nn.Module]) -> None:
    """Weight and bias of each linear or norm of ours to its counterpart."""
    for ours, theirs in pairs.items():
        theirs.load_state_dict(ours.state_dict())


def shaken(model: EncoderDecoder, size: float = 0.1) -> EncoderDecoder:
    """The model with its biases and norms moved from 0 and 1, where a copy that forgot them would not show."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(size * torch.randn_like(parameter))
    return model.eval()


# --- torch.nn.Transformer


def waves(length: int, width: int) -> Tensor:
    """Sinusoidal positions (L, D) as the paper writes them, number by number."""
    rows = [
        [(math.cos if i % 2 else math.sin)(p / 10_000 ** ((i - i % 2) / width)) for i in range(width)]
        for p in range(length)
    ]
    return torch.tensor(rows)


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between embeddings and logits, with the weights of one of our models."""

    def __init__(self, model: EncoderDecoder, placement: Residual, heads: int, hidden: int) -> None:
        super().__init__()
        ours_encoder, ours_decoder = cast(Encoder, model.encoder), cast(Decoder, model.decoder)
        width, final = model.encoder.embedding.width, placement is not PostNorm
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": final}
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(width, heads, hidden, **options),
            len(ours_encoder.blocks),
            nn.LayerNorm(width) if final else None,
            enable_nested_tensor=False,
        )
        decoder = nn.TransformerDecoder(
            nn.TransformerDecoderLayer(width, heads, hidden, **options),
            len(ours_decoder.blocks),
            nn.LayerNorm(width) if final else None,
        )
        self.inner = nn.Transformer(width, heads, custom_encoder=encoder, custom_decoder=decoder, **options)
        self.table, self.width = cast(Tensor, model.encoder.embedding.weight), int(width)
        if final:
            _copy({ours_encoder.norm: encoder.norm, ours_decoder.norm: decoder.norm})  # type: ignore[dict-item]
        for ours, theirs in zip(ours_encoder.blocks, encoder.layers, strict=True):
            self._fill(theirs, {"self_attn": ours.attention, "ff": ours.feed_forward})
        for ours, theirs in zip(ours_decoder.blocks, decoder.layers, strict=True):
            parts = {"self_attn": ours.self_attention, "multihead_attn": ours.cross_attention}
            self._fill(theirs, {**parts, "ff": ours.feed_forward})

    def _fill(self, layer: Any, branches: dict[str, Any]) -> None:
        """One layer, from our branches in their order: their norms are numbered in that order."""
        for number, (name, branch) in enumerate(branches.items(), start=1):
            _copy({branch.norm: getattr(layer, f"norm{number}")})
            if isinstance(branch.part, FeedForward):
                _copy({branch.part.expand: layer.linear1, branch.part.output: layer.linear2})
                continue
            theirs, projections = getattr(layer, name), (branch.part.query, branch.part.key, branch.part.value)
            _copy({branch.part.output: theirs.out_proj})
            with torch.no_grad():
                theirs.in_proj_weight.copy_(torch.cat([each.weight for each in projections]))
                theirs.in_proj_bias.copy_(torch.cat([each.bias for each in projections]))

    def forward(self, source: Tensor, target: Tensor, keep: Tensor) -> Tensor:
        """Logits (B, T, V)."""

        def embed(tokens: Tensor) -> Tensor:
            return self.table[tokens] * math.sqrt(self.width) + waves(tokens.shape[1], self.width)

        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(diagonal=1)
        x = self.inner(
            embed(source),
            embed(target),
            tgt_mask=future,
            src_key_padding_mask=~keep,
            memory_key_padding_mask=~keep,
        )
        return x @ self.table.T  # type: ignore[no-any-return]


# --- Hugging Face's Marian


def marian_pair(
    seed: int,
    *,
    width: int = 16,
    heads: int = 2,
    layers: int = 1,
    decoder_layers: int | None = None,
    hidden: int = 24,
    activation: str = "relu",
    talkative: bool = False,
) -> tuple[EncoderDecoder, Any]:
    """One of our models, and a MarianMTModel with the same weights.

    An untrained model repeats itself, and hardly ever ends. Where it is `talkative`, positions count for more than
    tokens, its logits are far apart, and ends are likely.
    """
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(seed)
    ours = transformer(
        VOCABULARY,
        width,
        heads,
        layers,
        hidden,
        dropout=0.0,
        decoder_layers=decoder_layers,
        residual=PostNorm,
        positions=scheme_of(Sinusoidal(width, interleaved=False)),
        activation=ACTIVATIONS[activation],
    )
    ours.head = TiedHead(ours.decoder.embedding, bias=True)
    shaken(ours)
    if talkative:
        with torch.no_grad():
            ours.decoder.embedding.weight.mul_(0.25)
            cast(Decoder, ours.decoder).blocks[-1].feed_forward.norm.weight.mul_(12.0)  # type: ignore[operator, union-attr]
            ours.head.bias[END] += END_BIAS  # type: ignore[index]
    theirs = MarianMTModel(
        MarianConfig(
            vocab_size=VOCABULARY,
            d_model=width,
            encoder_ffn_dim=hidden,
            decoder_ffn_dim=hidden,
            encoder_layers=layers,
            decoder_layers=decoder_layers or layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            dropout=0.0,
            attention_dropout=0.0,
            activation_function=activation,
            pad_token_id=PAD,
            eos_token_id=END,
            bos_token_id=START,
            decoder_start_token_id=START,
            forced_eos_token_id=None,
            max_position_embeddings=64,
            scale_embedding=True,
            share_encoder_decoder_embeddings=True,
        )
    ).eval()
    fill_marian(theirs, ours)
    return ours, theirs


def fill_marian(theirs: Any, ours: Any) -> None:
    """Copy our weights into a MarianMTModel."""

    def attention(mine: nn.Module, other: Any) -> None:
        assert isinstance(mine, MultiHeadAttention)
        _copy({mine.query: other.q_proj, mine.key: other.k_proj, mine.value: other.v_proj, mine.output: other.out_proj})

    with torch.no_grad():
        theirs.model.shared.weight.copy_(ours.encoder.embedding.weight)
        theirs.final_logits_bias.copy_(ours.head.bias[None])
    for mine, other in zip(ours.encoder.blocks, theirs.model.encoder.layers, strict=True):
        attention(mine.attention.part, other.self_attn)
        _copy({mine.attention.norm: other.self_attn_layer_norm, mine.feed_forward.norm: other.final_layer_norm})
        _copy({mine.feed_forward.part.expand: other.fc1, mine.feed_forward.part.output: other.fc2})
    for mine, other in zip(ours.decoder.blocks, theirs.model.decoder.layers, strict=True):
        attention(mine.self_attention.part, other.self_attn)
        attention(mine.cross_attention.part, other.encoder_attn)
        _copy({mine.self_attention.norm: other.self_attn_layer_norm})
        _copy({mine.cross_attention.norm: other.encoder_attn_layer_norm})
        _copy({mine.feed_forward.norm: other.final_layer_norm})
        _copy({mine.feed_forward.part.expand: other.fc1, mine.feed_forward.part.output: other.fc2})
