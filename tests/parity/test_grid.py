"""Other people's checkpoints: equal or refused. `make test` draws a part of the grid; GLASSFORMER_GRID=all runs all."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

transformers = pytest.importorskip("transformers")

from . import grid  # noqa: E402

CASES = grid.cases()
KNOWN = {  # keys that were read wrongly, or refused without need, before they were listed
    "VisionEncoderDecoderModel": ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "add_cross_attention"),
    "LlamaForCausalLM": ("rope_scaling", "rope_theta", "pretraining_tp", "sliding_window"),
    "T5ForConditionalGeneration": ("dense_act_fn", "is_gated_act"),
    "GPT2LMHeadModel": ("num_attention_heads",),
    "BartForConditionalGeneration": ("num_attention_heads",),
    "MarianMTModel": ("num_attention_heads", "tie_word_embeddings"),
    "BertForSequenceClassification": ("num_labels",),
    "ViTForImageClassification": ("image_size",),
}
DRAWN = [case for case in CASES if case.key[-1] in KNOWN.get(case.model, ())] + random.Random(13).sample(CASES, 30)
CHOSEN = CASES if os.environ.get("GLASSFORMER_GRID") == "all" else DRAWN


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()


def test_the_grid_covers_every_key_of_every_config_class() -> None:
    assert len(CASES) >= 1_000
    assert {case.model for case in CASES} == set(grid.BASES)


def test_a_checkpoint_is_equal_or_refused(tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    wrong = []
    for number, case in enumerate(CHOSEN):
        try:
            outcomes[grid.outcome(case, tmp_path / str(number)).partition(":")[0]] += 1
        except Exception as error:
            wrong.append(f"{case}: {type(error).__name__}: {error}")
    assert not wrong, "\n".join(wrong)
    assert outcomes["equal"] > len(CHOSEN) / 3, outcomes
