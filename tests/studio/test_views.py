"""What views answer is what the library says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import glassformer as gf
from glassformer.looking import packing
from glassformer.looking.answer import Answer, unpacked
from glassformer.looking.plots.choosing import names
from glassformer.models import recurrent
from glassformer.studio.views import decode, read
from glassformer.tasks.translation import Translator


def ask(client: TestClient, view: str, run: str, **options: Any) -> Answer:
    response = client.post(f"/api/ask/{view}", json={"run": run, "options": options})
    assert response.status_code == 200, response.text
    return unpacked(response.content)


def test_a_run_says_what_it_is_and_which_views_it_has(client: TestClient) -> None:
    said = ask(client, "about", "en-de").header
    assert said["examples"][0] == "The bank raised its interest rates."
    assert "read" in said["views"]
    own = ask(client, "about", "copy").header
    assert own["task"] == "translation"
    assert own["examples"][0].strip()


def test_read_has_the_weights_of_a_look(client: TestClient, trained: Translator) -> None:
    found, look = ask(client, "read", "copy", text="a b c"), trained.look("a b c")
    weights = look.attention("decoder.cross")[:, 0].flatten(0, 1).float().numpy()
    np.testing.assert_allclose(found.arrays["pieces decoder.cross"] / 65535, weights, atol=1 / 65535)
    assert found.header["output"] == look.output


def test_without_a_head_the_text_is_read_again(client: TestClient, trained: Translator) -> None:
    off = [{"kind": "decoder.cross", "layer": layer, "head": head} for layer in range(2) for head in range(4)]
    found = ask(client, "read", "copy", text="a b c d", off=off)
    with gf.intervene(trained) as edit:
        edit.zero("decoder.*.cross.heads")
        expected = trained.look("a b c d")
    assert found.header["output"] == expected.output != trained.look("a b c d").output


def test_the_effect_of_a_head_is_what_the_output_loses_without_it(client: TestClient, trained: Translator) -> None:
    heads = ask(client, "effects", "copy", text="a b c d").header["heads"]
    assert len(heads) == (2 + 2 + 2) * 4
    forced = trained.forced("a b c d")
    written = torch.tensor([*(forced.written or []), trained.special.end])

    def log_probability() -> float:
        with torch.inference_mode():
            logits = trained.model(*forced.inputs)[0].log_softmax(-1)
        return float(logits.gather(-1, written[:, None]).sum())

    whole = log_probability()
    for each in heads[:3] + heads[-3:]:
        stack, what = each["kind"].split(".")
        with gf.intervene(trained) as edit:
            edit.zero(f"{stack}.{each['layer']}.{what}.heads", heads=each["head"])
            assert each["effect"] == pytest.approx(whole - log_probability(), abs=1e-3)


def test_long_texts_have_windows_and_small_maps(
    client: TestClient, trained: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST", 6)
    monkeypatch.setattr(packing, "WHOLE", 10)
    monkeypatch.setattr(packing, "SMALL", 3)
    text = "a b c d e f g h a b"
    found, look = ask(client, "read", "copy", text=text, start=2), trained.look(text)
    assert found.header["window"] == {"start": 2, "length": 6, "tokens": 10}
    (encoder,) = [each for each in found.header["readings"]["pieces"] if each["name"] == "encoder.self"]
    assert encoder["columns"] == names(look.tokens("encoder")[0][2:8])
    assert found.arrays["pieces encoder.self small"].shape == (8, 3, 3)
    one = ask(client, "weights", "copy", text=text, start=2, reading="pieces", kind="encoder.self", layer=1, head=2)
    expected = look["encoder.1.self"][0, 2, 2:8, 2:8].numpy()
    np.testing.assert_allclose(one.arrays["weights"] / 255, expected, atol=1 / 255)


def test_decoding_goes_on_from_a_word_that_was_chosen(client: TestClient, trained: Translator) -> None:
    b = trained.target.encode("b")[0]
    found = ask(client, "decode", "copy", text="a b c d", prefix=[b])
    assert found.header["output"].startswith("b")
    assert found.header["tokens"][0] == b
    assert ask(client, "read", "copy", text="a b c d", prefix=[b]).header["output"] == found.header["output"]
    forced = trained.look("a b c d", prefix=[b])
    assert forced.output == found.header["output"]


def test_the_log_probabilities_of_steps_are_those_that_a_sampler_draws_from(client: TestClient) -> None:
    found, run = ask(client, "decode", "en-de", text="Good morning, Tom."), gf.load("en-de", "cpu")
    assert isinstance(run, Translator)
    trace = run.look("Good morning, Tom.", keep=["logits"])
    scores = trace["logits"][0].log_softmax(-1)
    for step, token in enumerate(found.header["tokens"]):
        assert found.header["log_probabilities"][step] == pytest.approx(float(scores[step, token]), abs=1e-3)
        best = int(found.arrays["tokens"][step, 0])
        assert float(found.arrays["values"][step, 0]) == pytest.approx(float(scores[step, best]), abs=1e-4)
    drawn = ask(client, "decode", "en-de", text="Good morning, Tom.", draw={"temperature": 1.5, "seed": 3})
    again = run.look("Good morning, Tom.", keep=["logits"], sampler=gf.decoding.Sampler(1.5, seed=3))
    assert drawn.header["output"] == again.output


def test_an_output_that_was_cut_short_has_no_end(trained: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Translator, "limits", property(lambda self: self.limits_of(2, self.special.start)))
    found = decode.decode(trained, decode.Decode(text="a b c d e", beam=1)).header
    assert found["tokens"] == trained.target.encode("a b")
    assert len(found["texts"]) == len(found["log_probabilities"]) == 2


def test_the_tree_is_that_of_the_search(client: TestClient, trained: Translator) -> None:
    found = ask(client, "decode", "copy", text="a b c d", beam=3, length_penalty=0.5)
    (tree,) = trained.look("a b c d", beam=3, length_penalty=0.5).beams
    assert found.arrays["node parent"].tolist() == [node.parent for node in tree.nodes]
    np.testing.assert_allclose(found.arrays["node score"], [node.score for node in tree.nodes], rtol=1e-5)
    assert {decode.FATES[node.fate] for node in tree.nodes} == set(found.arrays["node fate"].tolist())


LONG = (
    "Where is the old station, and when does the next train to the sea leave on Sunday mornings in the summer, if you "
    "know that by heart?"
)


def test_a_page_of_30_tokens_with_all_views_is_small_enough_to_be_sent(client: TestClient) -> None:
    of_text = {"read": {}, "effects": {}, "decode": {}, "inside": {}, "layers": {}, "embeddings": {"stack": "decoder"}}
    asked = [(view, {"text": LONG, **more}) for view, more in of_text.items()]
    asked += [("about", {}), ("vocabulary", {}), ("positions", {"stack": "decoder"})]
    asked += [("embeddings", {"text": LONG, "stack": "encoder"}), ("positions", {"stack": "encoder"})]
    wanted = [{"view": view, "run": "en-de", "options": options} for view, options in asked]
    page = client.post("/api/save", json={"asked": wanted, "state": ""})
    assert page.status_code == 200
    assert len(ask(client, "decode", "en-de", text=LONG).header["source"]) >= 30
    assert len(page.content) <= 5_000_000


def test_attention_can_be_set_by_hand_for_one_step(client: TestClient, trained: Translator) -> None:
    hand = {"step": 1, "key": 3}
    found = ask(client, "read", "copy", text="a b c d", attend=hand)
    cross = found.arrays["pieces decoder.cross"] / 65535
    np.testing.assert_allclose(cross[:, 1, 3], 1.0)
    usual = ask(client, "read", "copy", text="a b c d").arrays["pieces decoder.cross"] / 65535
    np.testing.assert_allclose(cross[:, 0], usual[:, 0], atol=1e-4)
    assert found.header["output"] == "a d c d"


def test_a_recurrent_model_with_attention_is_read_and_changed_too(trained: Translator) -> None:
    from glassformer.studio.views.traces import looked  # which the views import

    torch.manual_seed(0)
    run = trained.with_model(recurrent(trained.tokenizer.size, width=16).eval())
    found = read.read(run, read.Read(text="a b c", attend={"step": 0, "key": 2}))
    np.testing.assert_allclose(found.arrays["pieces decoder.cross"][0, 0] / 65535, [0, 0, 1])
    off = [{"kind": "decoder.cross", "layer": 0, "head": 0}]
    whole, without = (looked(run, read.Read(text="a b c", off=some))["logits"][0, 0] for some in ([], off))
    assert not torch.allclose(whole, without)
    (head,) = read.effects(run, read.Effects(text="a b c")).header["heads"]
    assert (head["kind"], head["layer"], head["head"]) == ("decoder.cross", 0, 0)


def test_words_of_bytes_are_shown_in_their_letters(client: TestClient) -> None:
    kinds = ask(client, "read", "en-de", text="银行 הבנק").header["readings"]
    columns = {each["name"]: each["columns"] for each in kinds["words"]}["decoder.cross"]
    assert columns == ["银", "行", "הבנק"]
