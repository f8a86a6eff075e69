"""The families: functions that assemble parts into models. They know nothing of files, devices or training."""

from collections.abc import Callable

from torch import nn

from glassformer.models.bart import bart
from glassformer.models.bert import bert, roberta
from glassformer.models.captioner import captioner
from glassformer.models.decoder_only import DecoderOnly
from glassformer.models.encoder_decoder import EncoderDecoder
from glassformer.models.encoder_only import EncoderOnly
from glassformer.models.family import Made, family
from glassformer.models.gpt2 import gpt2
from glassformer.models.llama import llama
from glassformer.models.marian import marian
from glassformer.models.recurrent import recurrent
from glassformer.models.t5 import t5
from glassformer.models.transformer import transformer, transformer_base, transformer_big, transformer_tiny
from glassformer.models.vit import vit

FAMILIES: dict[str, Callable[..., nn.Module]] = {
    "bart": bart,
    "bert": bert,
    "captioner": captioner,
    "gpt2": gpt2,
    "llama": llama,
    "marian": marian,
    "recurrent": recurrent,
    "roberta": roberta,
    "t5": t5,
    "transformer": transformer,
    "vit": vit,
}

__all__ = [
    "FAMILIES",
    "DecoderOnly",
    "EncoderDecoder",
    "EncoderOnly",
    "Made",
    "bart",
    "bert",
    "captioner",
    "family",
    "gpt2",
    "llama",
    "marian",
    "recurrent",
    "roberta",
    "t5",
    "transformer",
    "transformer_base",
    "transformer_big",
    "transformer_tiny",
    "vit",
]
