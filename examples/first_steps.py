"""A small Transformer learns to read a number in words and write it in digits, while you watch.

Run by `make demo`; takes well under a minute on two cores. Needs nothing but PyTorch and Glassformer.
"""

from __future__ import annotations

import math
import random
import time

import torch
import torch.nn.functional as F

import glassformer as gf

ONES_WORDS = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
]
TENS_WORDS = ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
WORDS = ["<pad>", "<start>", "<end>", *"0123456789", *ONES_WORDS, *TENS_WORDS[2:], "hundred", "thousand", "and"]
NUMBER = {word: number for number, word in enumerate(WORDS)}
PAD, START, END = range(3)
STEPS, BATCH, RATE = 800, 96, 3e-3
SHADES = " ░▒▓█"


def in_words(number: int) -> list[str]:
    """12345 as "twelve thousand three hundred and forty five"."""
    if number >= 1000:
        rest = in_words(number % 1000) if number % 1000 else []
        return [*in_words(number // 1000), "thousand", *rest]
    if number >= 100:
        rest = ["and", *in_words(number % 100)] if number % 100 else []
        return [ONES_WORDS[number // 100], "hundred", *rest]
    if number >= 20:
        return [TENS_WORDS[number // 10], *([ONES_WORDS[number % 10]] if number % 10 else [])]
    return [ONES_WORDS[number]]


def batch(numbers: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The numbers' words, which of them are real, and their digits with start and end."""
    source, keep = gf.pad([[NUMBER[word] for word in in_words(number)] for number in numbers], PAD)
    target, _ = gf.pad([[START, *(NUMBER[digit] for digit in str(number)), END] for number in numbers], PAD)
    return source, keep, target


def train(model: gf.EncoderDecoder, numbers: list[int]) -> None:
    """Teacher forcing: the decoder reads the right digits so far, and must predict the next one."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min((step + 1) / 50, 1 - step / STEPS))
    draw, began = random.Random(0), time.monotonic()
    for step in range(1, STEPS + 1):
        source, keep, target = batch(draw.sample(numbers, BATCH))
        logits = model(source, target[:, :-1], keep)
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        schedule.step()
        if step % 100 == 0:
            print(f"  step {step}   loss {loss.item():.4f}   {time.monotonic() - began:.0f} s", flush=True)


def show_attention(model: gf.EncoderDecoder, number: int) -> None:
    """Where the last layer's cross-attention looks while each digit is written, heads averaged."""
    source, keep, target = batch([number])
    with gf.record(model) as trace, torch.inference_mode():
        model(source, target[:, :-1], keep)
    heads = trace.attention("cross", trace.layers("cross") - 1)[0]  # (H, T, S)
    weights = heads.mean(dim=0)  # (T, S)
    words, digits = in_words(number), [*str(number), "<end>"]
    print(f"\nWhere it looks (last layer, mean of {len(heads)} heads):\n")
    for index, word in enumerate(words):
        shades = [SHADES[round(float(weights[row, index]) * (len(SHADES) - 1))] * 3 for row in range(len(digits))]
        print(f"  {word:>10}  " + "  ".join(f"{shade:^5}" for shade in shades))
    print(f"  {'':>10}  " + "  ".join(f"{digit:^5}" for digit in digits))


def main() -> None:
    """Train on some numbers, then read others."""
    torch.manual_seed(0)
    numbers = list(range(100_000))
    random.Random(1).shuffle(numbers)
    unseen, seen = numbers[:1000], numbers[1000:]
    model = gf.transformer(len(WORDS), width=64, heads=4, layers=2, hidden=256, dropout=0.0)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"Training a Transformer of {parameters:,} parameters to turn a number's words into digits.")
    train(model, seen)
    limits = gf.Limits(start=START, end=END, max_length=8)
    source, keep, _ = batch(unseen)
    answers = ["".join(WORDS[token] for token in best.tokens) for best in gf.greedy(model, source, keep, limits=limits)]
    right = sum(answer == str(number) for answer, number in zip(answers, unseen, strict=True))
    print(f"\nOf 1,000 numbers it never saw, it writes {right:,} without a mistake. Ten of them, with beam search:\n")
    source, keep, _ = batch(unseen[:10])
    for number, (best,) in zip(unseen, gf.beam_search(model, source, keep, limits=limits, width=5), strict=False):
        written = "".join(WORDS[token] for token in best.tokens)
        mark = "ok" if written == str(number) else f"should be {number}"
        print(f"  {' '.join(in_words(number)):58} → {written:6} p = {math.exp(best.log_probability):.3f}  {mark}")
    show_attention(model, unseen[0])


if __name__ == "__main__":
    main()
