"""Real sentences with a trained translator, on a GPU: `glassformer translate` beside `generate` of `transformers`.

Both have the same weights (`transformers` has pre-norm and sinusoidal positions only in Pegasus, whose table of
positions is written over with ours), the same batches, beams and limits, and end where the model ends. Ours starts with
texts and gives texts, `generate` starts with token ids. By default the translator that ships writes 150 sentences, each
five times: the repository has no more.

    python benchmarks/translate.py
    python benchmarks/translate.py --run runs/multi30k --texts test_2016_flickr.lc.norm.tok.en.gz
    python benchmarks/translate.py --device cpu --count 3   # tries the script itself
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path
from typing import Any

import torch

import glassformer as gf
from glassformer.parts import PreNorm, Sinusoidal, pad
from glassformer.tasks.writing import _together
from on_gpu import eagerly, timed
from peers import Write

ROOT = Path(__file__).parents[1]
FILES = (
    "src/glassformer/assets/en-de/check.tsv",
    "src/glassformer/experiments/longer.tsv",
    "tests/looking/alignments.tsv",
)
EARLY = {"never": "never", "estimated": False, "filled": True}  # as `generate` calls them
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

    made, table = model.blueprint.arguments, model.encoder.embedding
    if not isinstance(table.positions, Sinusoidal) or made["residual"] is not PreNorm:
        raise SystemExit('Pegasus has sinusoidal positions and pre-norm: train with model.positions = "sinusoidal"')
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
    weights["model.shared.weight"] = table.weight
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_tokens.weight"] = table.weight
        weights[f"model.{side}.embed_positions.weight"] = table.positions.table[:512]
    weights["lm_head.weight"] = table.weight
    missing, _ = theirs.load_state_dict(weights, strict=False)
    if [name for name in missing if name != "final_logits_bias"]:
        raise ValueError(f"not translated: {missing}")
    return theirs.eval()


def sentences(path: Path | None) -> list[str]:
    """Those of a file, or those that the repository has."""
    if path is None:
        return [line.split("\t")[0] for file in FILES for line in (ROOT / file).read_text("utf-8").splitlines()]
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file]


def generating(theirs: Any, run: Any, rows: list[list[int]], device: str) -> Write:
    """`generate` with the batches, beams and limits of a run."""
    special, limits, decode = run.special, run.limits, run.recipe.decode

    @torch.inference_mode()
    def generate() -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for some in _together(rows, [limits] * len(rows), decode.batch):
            tokens, keep = (x.to(device) for x in pad([rows[row] for row in some], special.pad))
            written = theirs.generate(
                input_ids=tokens,
                attention_mask=keep.long(),
                num_beams=decode.beam,
                max_new_tokens=limits.max_length,
                length_penalty=decode.length_penalty,
                early_stopping=EARLY[decode.early_stopping],
                do_sample=False,
                suppress_tokens=[*limits.suppress] or None,
                no_repeat_ngram_size=limits.no_repeat_ngram,
            )
            for row, output in zip(some, written[:, 1:].tolist(), strict=True):
                found[row] = output[: output.index(special.end)] if special.end in output else output
        return [found[row] for row in range(len(rows))]

    return generate


def main() -> None:
    """Measure, print a table for people and a line of JSON for programs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="en-de", help="a run of the family transformer, or a translator that ships")
    parser.add_argument("--texts", type=Path, help="sentences, one a line, also as .gz")
    parser.add_argument("--count", type=int, help="of these so many at most")
    parser.add_argument("--device", default="cuda")
    wish = parser.parse_args()
    run: Any = gf.load(wish.run, device=wish.device)
    lines = sentences(wish.texts)[: wish.count]
    texts, special = lines * (5 if wish.texts is None else 1), run.special
    report: dict[str, Any] = {"benchmark": "translate", "run": wish.run, "sentences": len(texts)}
    report |= {"different": len(set(lines)), "beam": run.recipe.decode.beam, "batch": run.recipe.decode.batch}
    for kind in (torch.float32, torch.bfloat16):
        run.model = run.model.to(kind)
        theirs = pegasus(run.model.float().cpu(), special).to(wish.device, kind)
        run.model = run.model.to(wish.device, kind)
        generate = generating(theirs, run, [run.read(text) for text in texts], wish.device)
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
