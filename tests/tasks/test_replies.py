"""What a page asks of a run and gets from it: fields, examples to try, what is answered in parts and labels."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labels
from every_task import MADE, EveryTask
from glassformer.errors import InputError
from glassformer.looking.points import points
from glassformer.tasks.images.pictures import MOST_LETTERS
from glassformer.tasks.run import Run
from glassformer.tasks.showing import Part, Reply


def answered(run: Any, text: str, length: int = 6) -> tuple[Reply, Any]:
    item = run.from_page(text)
    trace = run.look(item, keep=points(run)[-1:], **({"length": length} if run.extends else {}))
    return run.reply(item, trace), item


@pytest.mark.parametrize("name", MADE)
def test_every_run_suggests_what_it_can_be_given_and_answers_it(every_task: EveryTask, name: str) -> None:
    run = every_task(name)
    tries = run.suggestions(3)
    assert 1 <= len(tries) <= 3
    assert tries == sorted(tries, key=len)
    for text in tries:
        assert len(text.split("\t")) == len(run.fields)
        reply, _ = answered(run, text)
        assert reply.parts or reply.labels or reply.note


def test_labels_come_with_probabilities(every_task: EveryTask) -> None:
    run: Any = every_task("classification")
    reply, item = answered(run, "the old hammer")
    assert run.fields == ("text",)
    assert {each.text: each.probability for each in reply.labels} == run.classify([item])[0].probabilities
    assert reply.labels[0].text == "tool"


def test_two_texts_have_a_tab_between(every_task: EveryTask) -> None:
    run: Any = every_task("two texts")
    assert run.fields == ("first text", "second text")
    reply, item = answered(run, "my plum\tmy saw")
    assert item == ("my plum", "my saw")
    assert reply.labels[0].text == run.classify([item])[0].label
    with pytest.raises(InputError, match="two texts with a tab between: found 1"):
        run.from_page("my plum")


def test_each_word_has_its_tag(every_task: EveryTask) -> None:
    run: Any = every_task("tagging")
    reply, item = answered(run, "the can likes a fish")
    tags = run.tag([item])[0]
    assert [part.text for part in reply.parts] == tags.words
    assert [part.label for part in reply.parts] == tags.tags == ["DET", "NOUN", "VERB", "DET", "NOUN"]
    assert [part.likely[0].probability for part in reply.parts] == pytest.approx(tags.probabilities)


def test_an_answer_is_marked_in_its_context(every_task: EveryTask) -> None:
    run: Any = every_task("answering")
    assert run.fields == ("question", "context")
    context = "the old green house has nine windows"
    reply, item = answered(run, f"which number\t{context}")
    assert "".join(part.text for part in reply.parts) == context
    assert [part.text for part in reply.parts if part.marked] == [run.answer([item])[0].text] == ["nine"]
    assert run.from_page('{"a": 1}\tb') == ('{"a": 1}', "b")  # a question may look like JSON
    with pytest.raises(InputError, match="the context is empty"):
        run.from_page("which number")


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_what_is_written_goes_on_where_the_prompt_ends(every_task: EveryTask, name: str) -> None:
    run: Any = every_task(name)
    prompt = "the old cat"
    trace = run.look(prompt, length=4)
    whole = run.generate([prompt], length=4)[0]
    assert trace.output == whole.text.removeprefix(prompt)
    assert run.reply(prompt, trace).parts == (Part(prompt), Part(trace.output, marked=True))
    read = [*run.read(prompt), *(whole.ids if whole.finished else whole.ids[:-1])]
    assert trace["decoder.tokens"][0].tolist() == read
    likely = trace["logits"][0, len(run.read(prompt)) - 1 :].argmax(dim=-1)
    assert likely.tolist()[: len(whole.ids)] == whole.ids  # it is greedy, and reads what it wrote
    assert run.look(prompt).output == ""


def test_gaps_are_filled_in_their_places(every_task: EveryTask) -> None:
    run: Any = every_task("masked")
    reply, item = answered(run, "the [MASK] cat says [MASK] .")
    filled = run.fill([item])[0]
    assert "".join(part.text for part in reply.parts) == filled.text
    gaps = [part for part in reply.parts if part.marked]
    assert [gap.text.strip() for gap in gaps] == [gap.likely[0].text for gap in gaps]
    assert [[each.probability for each in gap.likely] for gap in gaps] == [
        [each.probability for each in gap] for gap in filled.gaps
    ]
    without, _ = answered(run, "the cat")
    assert without.note == "There is no gap: write [MASK] where a word is missing."


def test_spans_are_written_in_their_places(every_task: EveryTask) -> None:
    run: Any = every_task("spans")
    reply, item = answered(run, "the <extra_id_0> says <extra_id_1> .")
    assert "".join(part.text for part in reply.parts) == run.restore([item])[0] == run.look(item).output
    assert sum(part.marked for part in reply.parts) == 2


def sent(image: Image.Image, kind: str = "PNG", said: str = "png") -> str:
    held = io.BytesIO()
    image.save(held, kind)
    return f"data:image/{said};base64,{base64.b64encode(held.getvalue()).decode()}"


def test_an_image_comes_from_the_page_as_a_png_or_a_jpeg(every_task: EveryTask) -> None:
    run: Any = every_task("images")
    bar = labels.drawn("lying", 1000, size=8)
    reply, item = answered(run, sent(bar))
    assert run.fields == ("image",)
    np.testing.assert_array_equal(run.picture(item), np.asarray(bar))
    assert reply.labels[0].text == "lying"
    assert run.from_page(sent(bar.resize((80, 80)), "JPEG", "jpeg")).shape == (8, 8, 3)
    again = run.suggestion((item, "lying", "a"))  # what the model saw is seen the same
    np.testing.assert_array_equal(run.from_page(again), item)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("/etc/hostname", "the image must be a PNG or a JPEG"),
        ("data:image/svg+xml;base64,AAAA", "the image must be a PNG or a JPEG"),
        (sent(Image.new("RGB", (4, 4)), "GIF"), "the image: is no image of a known format"),
        (sent(Image.new("RGB", (40, 40)))[:-40], "the image: is damaged"),
        ("data:image/png;base64,A", "the image: is damaged: it is not in base64"),
        ("data:image/png;base64," + "A" * (MOST_LETTERS + 4), "the image: its file is larger than 6 MB"),
    ],
)
def test_what_is_no_image_is_refused(every_task: EveryTask, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        every_task("images").from_page(text)


def test_a_task_that_reads_images_opens_no_file_for_a_page_unless_it_says_how(every_task: EveryTask) -> None:
    run = every_task("images")
    with pytest.raises(InputError, match="runs for images take nothing from a page"):
        Run.from_page(run, "secret.png")


def test_numbers_are_read_a_line_for_each_step(every_task: EveryTask) -> None:
    run: Any = every_task("forecasting")
    lines = [f"{at}, {2 * at}" for at in range(16)]
    reply, item = answered(run, "\n".join(lines))
    np.testing.assert_allclose(run.history([item])[0], [[at, 2 * at] for at in range(16)])
    (found,) = run.forecast([item])
    assert [part.text.strip(" :\n") for part in reply.parts if not part.marked] == found.columns == ["heat", "load"]
    marked = [[float(each) for each in part.text.split()] for part in reply.parts if part.marked]
    np.testing.assert_allclose(marked, np.array(found.values).T, rtol=0.01)
    assert run.from_page("\n".join([*lines[:-1], "? 3"])).values[-1] == (None, 3.0)
    with pytest.raises(InputError, match="this run reads 16"):
        run.from_page("1, 2")
    with pytest.raises(InputError, match="all with as many numbers"):
        run.from_page("1, 2\n3")
    with pytest.raises(InputError, match="numbers only"):
        run.from_page("/etc/hostname 1")


def test_a_run_without_examples_suggests_nothing(every_task: EveryTask) -> None:
    run = every_task("copy")
    assert type(run)(run.recipe, run.model, run.assets).suggestions() == []
