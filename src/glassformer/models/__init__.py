"""The families: functions that assemble parts into models. They know nothing of files, devices or training."""

# ruff: noqa: F401
# mypy: implicit-reexport

from glassformer.models.bart import bart, marian
from glassformer.models.bert import bert, roberta
from glassformer.models.captioner import captioner
from glassformer.models.family import GIVEN, Blueprint, blueprint_of, family, family_parameters, variant
from glassformer.models.gpt2 import gpt2
from glassformer.models.llama import llama
from glassformer.models.recurrent import recurrent
from glassformer.models.series import series_decoder, series_encoder, series_recurrent
from glassformer.models.shapes import DecoderOnly, EncoderDecoder, EncoderOnly
from glassformer.models.t5 import t5
from glassformer.models.transformer import transformer, transformer_base, transformer_big, transformer_tiny
from glassformer.models.vit import vit
from glassformer.registry import FAMILIES
