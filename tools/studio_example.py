"""Records what the Studio shows before its model is loaded: answers of the model that ships, about its example.

    python tools/studio_example.py

To be run when the model, or what the view Read and write sends, has changed; a test compares both.
"""

from __future__ import annotations

import json

import glassformer as gf
from glassformer.studio.examples import BANK
from glassformer.studio.opening import RECORDED
from glassformer.studio.run_pool import ASSETS, SHIPPED
from glassformer.studio.saving import Asked, recorded
from glassformer.studio.views import VIEWS
from glassformer.writing import write_text


def main() -> None:
    """Write the file into the folder of the model."""
    run, answers = gf.load(SHIPPED, "cpu"), []
    for view, options in (("about", {}), ("read", {"text": BANK})):
        found = VIEWS[view]
        packed = found.answer(run, found.Options.model_validate(options)).packed()
        answers.append(recorded(Asked(view=view, run=SHIPPED, options=options), packed))
    path = ASSETS / SHIPPED / RECORDED
    write_text(path, json.dumps(answers))
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
