"""All benchmarks of decoding on a GPU in one process, one after the other: decode, translate, generate.

python benchmarks/gpu.py
"""

from __future__ import annotations

import sys
import time
import traceback

import decode
import generate
import translate


def main() -> None:
    """Run each; one that fails does not stop the others."""
    for name, work in (("decode", decode.main), ("translate", translate.main), ("generate", generate.main)):
        sys.argv = [name, *([] if name == "translate" else ["--device", "cuda"]), *(["--profile"] * (name == "decode"))]
        begin = time.perf_counter()
        try:
            work()
        except Exception:
            traceback.print_exc()
        print(f"({name}: {time.perf_counter() - begin:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
