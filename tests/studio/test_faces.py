"""The Studio's view of every task and family is what the run itself says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import glassformer as gf
import labels
from every_task import MADE, EveryTask
from glassformer.decoding import Sampler
from glassformer.errors import InputError
from glassformer.looking import analyses
from glassformer.looking.ablation import head_effects
from glassformer.looking.cells import cell_points
from glassformer.looking.points import points
from glassformer.studio.guards import Endpoint
from glassformer.studio.items import LONGEST
from glassformer.studio.run_pool import RunPool
from glassformer.studio.saving import page_for
from glassformer.studio.server import create_app
from tasks.test_replies import sent

from .conftest import HOST, PORT
from .test_views import ask


@pytest.fixture(scope="module")
def everyone(every_task: EveryTask) -> Iterator[TestClient]:
    """A Studio with a run of every task."""
    app = create_app(RunPool([every_task.path(name) for name in MADE], "cpu"), Endpoint("127.0.0.1", PORT))
    with TestClient(app, base_url=HOST) as found:
        yield found


@pytest.mark.parametrize("name", MADE)
def test_every_task_says_what_it_reads_and_answers_its_first_example(everyone: TestClient, name: str) -> None:
    about = ask(everyone, "about", name).header
    assert "read" in about["views"]
    assert len(about["examples"][0].split("\t")) == len(about["fields"])
    found = ask(everyone, "read", name, text=about["examples"][0])
    reply = found.header["reply"]
    assert reply["parts"] or reply["labels"] or reply["note"]
    assert found.header["readings"]["pieces"] or found.header["cells"]


def test_the_row_of_the_start_token_is_shown_first_where_a_label_is_read_from_it(everyone: TestClient) -> None:
    assert ask(everyone, "read", "classification", text="my saw").header["first"]["row"] == 0
    assert ask(everyone, "read", "tagging", text="the man sees a fish").header["first"]["row"] is None


def test_a_language_model_writes_as_much_as_is_asked(everyone: TestClient, every_task: EveryTask) -> None:
    run: Any = every_task("gpt2")
    for length in (0, 3):
        found = ask(everyone, "read", "gpt2", text="the old cat", length=length).header
        written = run.generate(["the old cat"], length=length)[0].text.removeprefix("the old cat") if length else ""
        assert found["output"] == written
        (kind,) = found["readings"]["pieces"]
        assert len(found["candidates"]) == len(kind["rows"])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_language_model_decodes_step_by_step(everyone: TestClient, every_task: EveryTask, name: str) -> None:
    run: Any = every_task(name)
    text = "the old cat"
    found = ask(everyone, "decode", name, text=text, length=4)
    written = run.generate([text], length=4)[0]
    ended = [run.special.end] if written.finished else []
    assert found.header["output"] == written.text.removeprefix(text)
    assert found.header["tokens"] == [*written.ids, *ended]
    assert sum(found.header["log_probabilities"]) == pytest.approx(written.log_probability, abs=1e-3)
    assert found.header["source"][found.header["first"]].endswith("cat")
    other = int(found.arrays["tokens"][0, 1])  # the second likeliest is written instead
    forced = ask(everyone, "decode", name, text=text, length=4, prefix=[other]).header
    read = ask(everyone, "read", name, text=text, length=4, prefix=[other]).header
    assert (forced["tokens"][0], forced["forced"]) == (other, 1)
    assert read["output"] == forced["output"] != found.header["output"]
    assert read["begins"] == found.header["first"]
    drawn = ask(everyone, "decode", name, text=text, length=4, draw={"temperature": 3, "seed": 5}).header
    assert drawn["output"] == run.look(text, length=4, sampler=Sampler(3.0, seed=5)).output
    searched = ask(everyone, "decode", name, text=text, length=4, beam=3)
    (tree,) = run.look(text, length=4, beam=3).beams
    assert searched.arrays["node token"].tolist() == [node.token for node in tree.nodes]
    assert searched.header["output"] == run.generate([text], length=4, beam=3)[0].text.removeprefix(text)


def test_a_language_model_reads_what_is_set_by_hand(everyone: TestClient, every_task: EveryTask) -> None:
    text, run = "the old cat", every_task("gpt2")
    hand = {"step": ask(everyone, "read", "gpt2", text=text).header["begins"], "key": 1}
    found = ask(everyone, "read", "gpt2", text=text, length=3, attend=hand)
    weights = found.arrays["pieces decoder.self"] / 65535
    np.testing.assert_allclose(weights[:, hand["step"], 1], 1.0)
    with gf.intervene(run) as edit:
        edit.attend("decoder.*.self", key=1, query=hand["step"])
        assert run.look(text, length=3).output == found.header["output"]  # type: ignore[call-arg]


def test_where_nothing_is_written_there_is_nothing_to_decode(everyone: TestClient) -> None:
    refused = everyone.post("/api/ask/decode", json={"run": "gpt2", "options": {"text": "the cat", "length": 0}})
    assert (refused.status_code, refused.json()["error"][:22]) == (400, "0 tokens are to be wri")


def test_a_caption_is_decoded_step_by_step(everyone: TestClient, every_task: EveryTask) -> None:
    run: Any = every_task("captioning")
    image = ask(everyone, "about", "captioning").header["examples"][0]
    found = ask(everyone, "decode", "captioning", text=image)
    assert found.header["output"] == run.look(run.from_page(image)).output
    other = int(found.arrays["tokens"][0, 1])
    forced = ask(everyone, "decode", "captioning", text=image, prefix=[other]).header
    assert forced["tokens"][0] == other


def test_an_image_is_shown_as_the_model_sees_it(everyone: TestClient, every_task: EveryTask) -> None:
    run: Any = every_task("images")
    image = labels.drawn("standing", 7).resize((64, 64))
    found = ask(everyone, "read", "images", text=sent(image))
    assert found.header["picture"]["side"] == 4
    np.testing.assert_array_equal(found.arrays["pixels"], run.see(image))
    again = ask(everyone, "read", "images", text=found.header["picture"]["seen"])
    np.testing.assert_array_equal(again.arrays["pixels"], found.arrays["pixels"])
    assert again.header["reply"] == found.header["reply"]


def test_cells_have_the_gates_and_the_memory_of_the_analyses(everyone: TestClient, every_task: EveryTask) -> None:
    run: Any = every_task("blind")
    found, trace = ask(everyone, "read", "blind", text="a b c"), run.look("a b c", keep=cell_points(points(run)))
    assert found.header["readings"] == {"pieces": []}
    assert found.header["words"]["written"] == trace.about.words["written"][0]  # Decoding counts in words
    assert [cell["name"] for cell in found.header["cells"]] == ["encoder.0", "decoder.0"]
    for stack in ("encoder", "decoder"):
        gates, memory = analyses.gates(trace, stack=stack), analyses.memory(trace, stack=stack)
        np.testing.assert_allclose(found.arrays[f"{stack}.0 gates"] / 255, gates.values, atol=1 / 255)
        np.testing.assert_allclose(found.arrays[f"{stack}.0 kept"] / 65535, memory.kept, atol=1e-4)
        state = 2 * (found.arrays[f"{stack}.0 state"] / 255) - 1
        np.testing.assert_allclose(state, trace[f"{stack}.0.state"][0], atol=1 / 127)


@pytest.mark.parametrize("name", ["forecasting", "embedding"])
def test_numbers_have_no_probability_that_a_head_could_matter_for(
    everyone: TestClient, every_task: EveryTask, name: str
) -> None:
    run: Any = every_task(name)
    assert "effects" not in ask(everyone, "about", name).header["views"]
    text = run.suggestions()[0]
    response = everyone.post("/api/ask/effects", json={"run": name, "options": {"text": text}})
    assert (response.status_code, "has no view" in response.json()["error"]) == (400, True)
    with pytest.raises(InputError, match="answers with numbers, which have no probability"):
        head_effects(run, run.from_page(text))
    assert '"view":"effects"' not in page_for(run, name, text, {}, {})


@pytest.mark.parametrize("view", ["read", "effects", "inside", "layers", "embeddings", "compare"])
def test_no_view_opens_a_file_that_a_page_names(everyone: TestClient, view: str, tmp_path: Path) -> None:
    file = tmp_path / "private.png"
    labels.drawn("lying", 3).save(file)
    more = {"compare": {"other": "images"}, "embeddings": {"stack": "encoder"}}
    options = {"text": str(file), **more.get(view, {})}
    response = everyone.post(f"/api/ask/{view}", json={"run": "images", "options": options})
    assert response.status_code == 400, response.text
    has_none = f'the run "images" has no view "{view}"'
    assert response.json()["error"] in ("the image must be a PNG or a JPEG", has_none)


@pytest.mark.parametrize(
    ("run", "text", "message"),
    [
        ("images", "/etc/hostname", "the image must be a PNG or a JPEG"),
        ("two texts", "only one", "this run was trained on two texts with a tab between: found 1"),
        ("answering", "which colour", "the context is empty"),
        ("classification", "saw " * LONGEST, f"the text has {4 * LONGEST:,} characters: {LONGEST:,} are read at most"),
    ],
)
def test_what_a_run_cannot_read_is_refused_in_a_sentence(
    everyone: TestClient, run: str, text: str, message: str
) -> None:
    response = everyone.post("/api/ask/read", json={"run": run, "options": {"text": text}})
    assert response.status_code == 400
    assert response.json()["error"] == message


@pytest.mark.parametrize("name", MADE)
def test_every_task_is_shown_inside_and_its_numbers_are_written_out(everyone: TestClient, name: str) -> None:
    text = ask(everyone, "about", name).header["examples"][0]
    lanes = ask(everyone, "inside", name, text=text).header["lanes"]
    parts = [part for lane in lanes for stage in lane["stages"] for part in stage["parts"]]
    for part in parts:
        token = 0 if part["kind"] in ("head", "numbers") else 1
        found = ask(everyone, "inside.part", name, text=text, part=part["name"], token=token)
        for table, said in found.header["tables"].items():
            at = said["places"][0] if said["places"] else said["first_column"]
            if said["point"] and table != "joined":  # which is of all heads
                cell = {"point": said["point"], "token": said["first"], "at": at, "head": said["head"]}
                shown = ask(everyone, "inside.cell", name, text=text, **cell).header
                first = float(found.arrays[table][0, 0])
                assert shown["value"] == pytest.approx(first, abs=1e-4), (part["name"], table)
                assert shown["steps"][-1]["value"] == pytest.approx(first, abs=1e-3), (part["name"], table)


@pytest.mark.parametrize("name", MADE)
def test_tokens_of_every_task_have_neighbours_and_positions(everyone: TestClient, name: str) -> None:
    about = ask(everyone, "about", name).header
    text, other = about["examples"][0], about["examples"][-1]
    for stack in ("encoder", "decoder"):
        if any(point.startswith(f"{stack}.") for point in about["points"]):
            ask(everyone, "positions", name, stack=stack)
            maps = ask(everyone, "embeddings", name, text=text, other=other, stack=stack).header
            assert set(maps["texts"]) == {0, 1}
            near = ask(everyone, "embeddings.near", name, text=text, stack=stack, token=1).header
            reads_tokens = f"{stack}.tokens" in about["points"]
            assert (near["vocabulary"] != []) == reads_tokens


@pytest.mark.parametrize("name", MADE)
def test_layers_explain_every_task_whose_answer_has_scores(everyone: TestClient, name: str) -> None:
    about = ask(everyone, "about", name).header
    assert ("layers" in about["views"]) == (name not in ("forecasting", "embedding"))  # numbers, and a vector
    if "layers" not in about["views"]:
        return
    lens = ask(everyone, "layers", name, text=about["examples"][0]).header
    last = len(lens["chosen"]) - 1
    asked = {"text": about["examples"][0], "position": last}
    for method in ("occlusion", "input_x_gradient"):
        source = ask(everyone, "layers.source", name, **asked, method=method).header
        assert any(source["readings"]["pieces"]["values"])
    if not lens["without"]:
        parts = ask(everyone, "layers.parts", name, **asked).header
        assert sum(parts["values"]) == pytest.approx(parts["logit"], abs=1e-3)


def test_what_a_language_model_wrote_is_looked_into(everyone: TestClient, every_task: EveryTask) -> None:
    run: Any = every_task("gpt2")
    text = "the old cat"
    read = ask(everyone, "read", "gpt2", text=text, length=3).header["readings"]["pieces"][0]["rows"]
    for view in ("inside", "layers", "embeddings"):
        more = {"stack": "decoder"} if view == "embeddings" else {}
        found = ask(everyone, view, "gpt2", text=text, length=3, **more).header
        shown = found["lanes"][-1]["tokens"] if view == "inside" else found["tokens" if more else "places"]
        assert shown == read, view
        assert len(shown) > len(run.read(text))
    last = {"text": text, "length": 3, "position": len(read) - 1}
    ask(everyone, "layers.source", "gpt2", **last)
    patched = ask(everyone, "layers.patching", "gpt2", **last, other="the red cat")
    assert patched.arrays["effects"].shape[1] == len(read)


def test_an_image_is_patched_from_another(everyone: TestClient) -> None:
    one, two = (sent(labels.drawn(label, 7)) for label in ("standing", "lying"))
    found = ask(everyone, "layers.patching", "images", text=one, other=two)
    assert found.header["labels"][:2] == ["class", "1,1"]
    assert found.arrays["effects"].max() > 0.5


def test_runs_that_read_different_things_are_not_compared(everyone: TestClient) -> None:
    image = ask(everyone, "about", "images").header["examples"][0]
    response = everyone.post(
        "/api/ask/compare", json={"run": "images", "options": {"text": image, "other": "captioning"}}
    )
    assert response.status_code == 200, response.text
    response = everyone.post("/api/ask/compare", json={"run": "images", "options": {"text": image, "other": "copy"}})
    said = 'this run reads image, but "copy" text: they cannot be compared'
    assert (response.status_code, response.json()["error"]) == (400, said)
