"""Interop: the formats of the ecosystem, read and written to the same numbers.

model = gf.interop.load("path/to/folder")        # or the name of a model on the Hugging Face hub
gf.interop.save(model, "another/folder")         # `transformers` loads it
gf.interop.load_lora(model, "path/to/adapter")   # written by `peft`, or by us
gf.interop.save_lora(model, "another/adapter")   # `peft` loads it
"""

from glassformer.interop.checkpoints import load as load
from glassformer.interop.checkpoints import save as save
from glassformer.interop.peft import load_lora as load_lora
from glassformer.interop.peft import save_lora as save_lora
