"""Real sentences with the translator that ships, on a GPU: `glassformer translate` beside `generate` of `transformers`.

Both have the same weights (`transformers` has pre-norm and sinusoidal positions only in Pegasus, whose table of
positions is written over with ours), the same batches, beams and limits, and end where the model ends. Ours starts with
texts and gives texts, `generate` starts with token ids. 100 sentences, each five times: the repository has no more.

    python benchmarks/translate.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch

import glassformer as gf
from glassformer.parts import pad
from glassformer.tasks.writing import _together
from on_gpu import eagerly, timed

ROOT = Path(__file__).parents[1]
FILES = ("src/glassformer/assets/en-de/check.tsv", "tests/looking/alignments.tsv")
NAMES = (
    (r"encoder\.blocks\.(\d+)\.attention\.part", r"model.encoder.layers.\1.self_attn"),
    (r"encoder\.blocks\.(\d+)\.attention\.norm", r"model.encoder.layers.\1.self_attn_layer_norm"),
    (r"decoder\.blocks\.(\d+)\.self_attention\.part", r"model.decoder.layers.\1.self_attn"),
    (r"decoder\.blocks\.(\d+)\.self_attention\.norm", r"model.decoder.layers.\1.self_attn_layer_norm"),
    (r"decoder\.blocks\.(\d+)\.cross_attention\.part", r"model.decoder.layers.\1.encoder_attn"),
    (r"decoder\.blocks\.(\d+)\.cross_attention\.norm", r"model.decoder.layers.\1.encoder_attn_layer_norm"),
    (r"(en|de)coder\.blocks\.(\d+)\.feed_forward\.part\.expand", r"model.\1coder.layers.\2.fc1"),
    (r"(en|de)coder\.blocks\.(\d+)\.feed_forward\.part\.output", r"model.\1coder.layers.\2.fc2"),
    (r"(en|de)coder\.blocks\.(\d+)\.feed_forward\.norm", r"model.\1coder.layers.\2.final_layer_norm"),
    (r"^(en|de)coder\.norm", r"model.\1coder.layer_norm"),
    (r"\.query\.", ".q_proj."),
    (r"\.key\.", ".k_proj."),
    (r"\.value\.", ".v_proj."),
    (r"\.output\.", ".out_proj."),
)


def pegasus(model: Any, special: Any) -> Any:
    """The same model in `transformers`."""
    from transformers import PegasusConfig, PegasusForConditionalGeneration

    made = model.blueprint.arguments
    config = PegasusConfig(
        vocab_size=made["vocabulary"],
        d_model=made["width"],
        encoder_layers=made["layers"],
        decoder_layers=made["decoder_layers"] or made["layers"],
        encoder_attention_heads=made["heads"],
        decoder_attention_heads=made["heads"],
        encoder_ffn_dim=made["hidden"],
        decoder_ffn_dim=made["hidden"],
        activation_function="relu",
        scale_embedding=True,
        max_position_embeddings=512,
        pad_token_id=special.pad,
        eos_token_id=special.end,
        bos_token_id=special.start,
        decoder_start_token_id=special.start,
        forced_eos_token_id=None,
    )
    theirs = PegasusForConditionalGeneration(config)
    weights = {}
    for name, value in model.state_dict().items():
        for pattern, new in NAMES:
            name = re.sub(pattern, new, name)
        weights[name] = value
    table = model.encoder.embedding
    weights["model.shared.weight"] = table.weight
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_tokens.weight"] = table.weight
        weights[f"model.{side}.embed_positions.weight"] = table.positions.table[:512]
    weights["lm_head.weight"] = table.weight
    missing, _ = theirs.load_state_dict(weights, strict=False)
    if [name for name in missing if name != "final_logits_bias"]:
        raise ValueError(f"not translated: {missing}")
    return theirs.eval()


def main() -> None:
    """Measure, print a table for people and a line of JSON for programs."""
    run: Any = gf.load("en-de", device="cuda")
    lines = [line.split("\t")[0] for file in FILES for line in (ROOT / file).read_text(encoding="utf-8").splitlines()]
    texts, special = lines * 5, run.special
    report: dict[str, Any] = {"benchmark": "translate", "sentences": len(texts), "different": len(lines)}
    for kind in (torch.float32, torch.bfloat16):
        run.model = run.model.to(kind)
        theirs = pegasus(run.model.float().cpu(), special).cuda().to(kind)
        run.model = run.model.cuda().to(kind)
        rows, limits = [run.read(text) for text in texts], run.limits

        @torch.inference_mode()
        def generate(theirs: Any = theirs, rows: Any = rows, limits: Any = limits) -> list[list[int]]:
            found: dict[int, list[int]] = {}
            for some in _together(rows, [limits] * len(rows), run.recipe.decode.batch):
                tokens, keep = (x.cuda() for x in pad([rows[row] for row in some], special.pad))
                written = theirs.generate(
                    input_ids=tokens,
                    attention_mask=keep.long(),
                    num_beams=run.recipe.decode.beam,
                    max_new_tokens=limits.max_length,
                    length_penalty=run.recipe.decode.length_penalty,
                    early_stopping="never",
                    do_sample=False,
                    suppress_tokens=[*limits.suppress] or None,
                    no_repeat_ngram_size=limits.no_repeat_ngram,
                )
                for row, output in zip(some, written[:, 1:].tolist(), strict=True):
                    found[row] = output[: output.index(special.end)] if special.end in output else output
            return [found[row] for row in range(len(rows))]

        ours, seconds = lambda: [each.ids for each in run.translate(texts)], {}
        seconds["first"] = timed(ours)[0]
        if kind == torch.float32:
            timed(generate)
        for name, write in {"ours": ours, "ours-eager": eagerly(ours), "generate": generate}.items():
            outputs = [timed(write) for _ in range(2 if name == "ours" else 1)]
            seconds[name], written = min(each for each, _ in outputs), outputs[0][1]
            if name == "ours":
                reference = written
            same = sum(one == other for one, other in zip(written, reference, strict=True)) / len(texts)
            print(f"{kind} {name}: {len(texts) / seconds[name]:.0f} sentences/s, {same:.1%} the same", flush=True)
        report[str(kind)] = {name: round(len(texts) / took) for name, took in seconds.items()}
        report[str(kind)]["times_generate"] = round(seconds["generate"] / seconds["ours"], 2)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
