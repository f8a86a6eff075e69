"""Text: tokenizers and special tokens."""

from glassformer.text.display import SPACE as SPACE
from glassformer.text.display import on_a_line as on_a_line
from glassformer.text.special_tokens import MASKS as MASKS
from glassformer.text.special_tokens import SENTINEL as SENTINEL
from glassformer.text.special_tokens import SpecialTokens as SpecialTokens
from glassformer.text.special_tokens import framed_special_tokens as framed_special_tokens
from glassformer.text.special_tokens import own_special_tokens as own_special_tokens
from glassformer.text.tokenizer import Tokenizer as Tokenizer
