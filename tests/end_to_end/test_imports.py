"""Checkpoints from elsewhere, used from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import glassformer as gf
from glassformer import interop
from glassformer.errors import NonFiniteError
from glassformer.models import bart, bert, gpt2, marian, vit
from glassformer.recipe import Tokenizer as Section
from glassformer.runs import import_run
from glassformer.tasks.translation import Translator
from glassformer.text import Tokenizer

from .helpers import Command, complains, envelopes

WEIGHTS = Path(__file__).parents[3] / "shared" / "weights"
TEXTS = ["the dog saw the cat", "a cat sat on the mat", "the moon was big and bright"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXTS * 20, Section(kind="bpe", vocabulary=300))


@pytest.fixture(scope="module")
def language_model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gpt2")
    interop.save(gpt2(tokenizer.size, width=16, heads=2, layers=1, length=40), folder)
    tokenizer.save(folder / "tokenizer.json")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": tokenizer.end}))
    return folder


def test_a_language_model_is_imported_generates_and_is_exported(
    command: Command, language_model: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    answer = command("import", language_model, run)
    assert answer.code == 0
    assert "next: glassformer generate --run" in answer.out
    first = command("generate", "--run", run, "the dog", "a cat", "--length", "8")
    assert first.code == 0
    assert all(line.startswith(begin) for line, begin in zip(first.out.splitlines(), ("the dog", "a cat"), strict=True))
    assert command("generate", "--run", run, "--length", "8", stdin=b"the dog\na cat\n").out == first.out
    assert (
        command("generate", "--run", run, "the dog", "--length", "8", "--stream").out
        == first.out.splitlines()[0] + "\n"
    )
    drawn = [command("generate", "--run", run, "the dog", "--temperature", "1", "--seed", seed).out for seed in "112"]
    assert drawn[0] == drawn[1] != drawn[2]
    out = tmp_path / "out"
    assert command("export", "--run", run, out).code == 0
    transformers = pytest.importorskip("transformers")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(out).eval()
    tokens = torch.tensor([Tokenizer.load(out / "tokenizer.json", complete=False).encode("the dog")])
    with torch.inference_mode():
        torch.testing.assert_close(interop.load(run)(tokens), theirs(tokens).logits, atol=1e-5, rtol=1e-5)


def test_generation_settings_are_used_and_options_override_them(
    command: Command, language_model: Path, tmp_path: Path
) -> None:
    end = json.loads((language_model / "config.json").read_text())["eos_token_id"]
    settings = {"do_sample": True, "temperature": 2.0, "top_k": 5, "max_new_tokens": 6, "eos_token_id": end}
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(language_model, checkpoint)
    (checkpoint / "generation_config.json").write_text(json.dumps(settings))
    run, plain = tmp_path / "run", tmp_path / "plain"
    assert command("import", checkpoint, run).code == command("import", language_model, plain).code == 0

    def generate(folder: Path, *options: str) -> str:
        answer = command("generate", "--run", folder, "the dog", *options)
        assert answer.code == 0, answer.err
        return answer.out

    drawn = generate(run)
    assert drawn == generate(plain, "--temperature", "2", "--top-k", "5", "--length", "6") == generate(run, "--stream")
    assert drawn != generate(run, "--seed", "1")
    for options in (("--temperature", "0"), ("--beam", "1"), ("--temperature", "0", "--stream")):
        assert generate(run, *options) == generate(plain, "--length", "6") != drawn
    assert generate(run, "--beam", "3") == generate(plain, "--length", "6", "--beam", "3")
    complains(
        command("generate", "--run", run, "a", "--beam", "3", "--stream"), 2, "leave out --temperature and --stream"
    )
    (checkpoint / "generation_config.json").write_text(json.dumps({"penalty_alpha": 0.6}))
    complains(command("import", checkpoint, tmp_path / "x"), 2, "penalty_alpha is 0.6, which is not supported")


def test_a_model_whose_outputs_are_not_finite_is_refused(language_model: Path, tmp_path: Path) -> None:
    run = import_run(language_model, tmp_path / "run")
    with torch.no_grad():
        next(run.model.parameters()).fill_(torch.nan)
    for beam in (1, 3):
        with pytest.raises(NonFiniteError, match="the model's outputs are not finite numbers: its weights are damaged"):
            run.generate(["the dog"], beam=beam)
    with pytest.raises(NonFiniteError):
        list(run.stream("the dog"))


def test_a_translator_is_imported_and_translates(command: Command, tokenizer: Tokenizer, tmp_path: Path) -> None:
    torch.manual_seed(0)
    folder, run = tmp_path / "marian", tmp_path / "run"
    interop.save(marian(tokenizer.size, width=16, heads=2, layers=1, hidden=16), folder)
    tokenizer.save(folder / "tokenizer.json")
    assert command("import", folder, run).code == 0
    answer = command("translate", "--run", run, "--beam", "3", stdin=b"the dog\n\na cat\n")
    assert answer.code == 0
    assert len(answer.out.splitlines()) == 3
    wrong = command("generate", "--run", run, "the dog")
    assert wrong.code == 2
    assert "does not generate: it was trained for translation" in wrong.err


def test_a_prompt_without_room_leaves_the_others_theirs_streamed_or_not(
    command: Command, language_model: Path, tmp_path: Path
) -> None:
    command("import", language_model, tmp_path / "run")
    asked = b"the dog\n" + b"the dog " * 40 + b"\na cat\n"
    plain, streamed = (
        command("generate", "--run", tmp_path / "run", "--length", "4", *more, stdin=asked)
        for more in ((), ("--stream",))
    )
    assert plain == streamed
    assert (plain.code, len(plain.out.splitlines()), plain.out.splitlines()[1]) == (2, 3, "")
    assert plain.err.splitlines()[0].endswith("leaves no room: the model reads 40 in all")
    assert plain.err.splitlines()[1:] == ["glassformer: 1 of 3 texts could not be used"]


def test_nothing_is_written_over_unless_forced(command: Command, language_model: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    out.mkdir()  # an empty folder is free
    assert command("import", language_model, run).code == 0
    assert command("export", "--run", run, out).code == 0
    (out / "mine.txt").write_text("mine")
    (out / "source.tokenizer.json").write_text("of another model")
    before = {path: path.read_bytes() for path in (*run.iterdir(), *out.iterdir())}
    complains(command("export", "--run", run, out), 2, f"{out} is not empty", "--force")
    complains(command("import", language_model, out), 2, f"{out} is not empty", "--force")
    complains(command("export", "--run", run, run, "--force"), 2, f"{run} is the run itself")
    complains(command("import", language_model, language_model, "--force"), 2, "is the checkpoint itself")
    assert {path: path.read_bytes() for path in (*run.iterdir(), *out.iterdir())} == before
    assert command("export", "--run", run, out, "--force").code == 0
    assert (out / "mine.txt").read_text() == "mine"
    assert not (out / "source.tokenizer.json").exists()
    assert command("import", out, run, "--force").code == 0
    assert (run / "model.safetensors").read_bytes() == before[run / "model.safetensors"]
    assert command("generate", "--run", run, "the dog", "--length", "2").code == 0


def test_a_trained_run_is_never_written_over(command: Command, trained: Translator, language_model: Path) -> None:
    path = trained.path
    assert path is not None
    for arguments in (("import", language_model, path), ("export", "--run", path, path)):
        complains(command(*arguments, "--force"), 2, f"{path} holds a run that was trained: choose another folder")
    assert gf.load(path).recipe == trained.recipe


def test_what_cannot_be_imported_or_used_is_a_sentence(
    command: Command, language_model: Path, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    command("import", language_model, run)
    for arguments, sentence in (
        (
            ("import", language_model, run),
            f"{run} is not empty: choose another folder, or write over what it holds with --force",
        ),
        (("import", tmp_path / "nowhere", tmp_path / "x"), "there is no such folder"),
        (("generate", "--run", run, "a", "--adapter", "nowhere"), "nowhere: there is no such folder"),
        (("translate", "--run", run), "does not translate: it was trained for language-modelling"),
        (("generate", "--run", run, "the dog", "--top-p", "0.9"), "give a --temperature as well"),
        (("generate", "--run", run, "the dog " * 40), "leaves no room: the model reads 40 in all"),
        (("export", "--run", run, "--to", "tensorflow", tmp_path / "y"), '--to is "tensorflow": expected huggingface'),
    ):
        answer = command(*arguments, stdin=b"the dog\n")
        assert answer.code == 2, arguments
        assert sentence in answer.err
        assert "Traceback" not in answer.err
    (tmp_path / "bare").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "bare" / name).write_bytes((language_model / name).read_bytes())
    assert "has no tokenizer.json: with transformers, load" in command("import", tmp_path / "bare", tmp_path / "z").err
    Tokenizer.train(TEXTS * 20, Section(kind="bpe", vocabulary=310)).save(tmp_path / "bare" / "tokenizer.json")
    small = tmp_path / "small"
    interop.save(gpt2(tokenizer.size - 5, width=16, heads=2, layers=1, length=40), small)
    tokenizer.save(small / "tokenizer.json")
    assert "they do not belong together" in command("import", small, tmp_path / "w").err
    interop.save(bert(50, width=16, heads=2, layers=1, hidden=16, length=10), tmp_path / "bert")
    assert "has no tokenizer.json: with transformers, load" in command("import", tmp_path / "bert", tmp_path / "v").err


def spelling_to_sound(tmp_path: Path) -> Path:
    """A small BART with one tokenizer for each side, which never ends by itself."""
    torch.manual_seed(0)
    folder = tmp_path / "bart"
    model = bart(30, width=8, heads=2, layers=1, hidden=8, length=12)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        model.get_parameter("head.bias")[2] = -100.0
    interop.save(model, folder)
    config = json.loads((folder / "config.json").read_text())
    letters = {"grapheme_chars": "____abcdefghijklm", "phoneme_chars": "____nopqrstuvwxyz"}
    special = {"eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 1}
    (folder / "config.json").write_text(json.dumps({**config, **letters, **special}))
    return folder


def test_two_tokenizers_go_out_as_they_came_in(command: Command, tmp_path: Path) -> None:
    import_run(spelling_to_sound(tmp_path), tmp_path / "run")
    assert command("export", "--run", tmp_path / "run", tmp_path / "out").code == 0
    import_run(tmp_path / "out", tmp_path / "again")
    first, second = (gf.load(tmp_path / name, "cpu").translate(["badcabbage"]) for name in ("run", "again"))
    assert first == second
    assert set(first[0].text) & set("nopqrstuvwxyz")
    assert len(first[0].ids) == 12  # where its positions end, so does what it writes


def test_special_tokens_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    folder = spelling_to_sound(tmp_path)
    (word,) = _imported(folder, tmp_path / "one").translate(["bad"])
    (folder / "generation_config.json").write_text(json.dumps({"bad_words_ids": [[word.ids[0]]], "eos_token_id": [2]}))
    (other,) = _imported(folder, tmp_path / "two").translate(["bad"])
    assert word.ids[0] not in other.ids
    assert (tmp_path / "two" / "generation_config.json").is_file()
    assert max(other.ids) < 17  # the table has 30 rows, but there are 17 letters
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": "</s>"}))
    with pytest.raises(
        gf.InputError, match=r"eos_token_id has .</s>., but the vocabulary of the model has the ids 0 to 29"
    ):
        _imported(folder, tmp_path / "three")
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(gf.InputError, match=r"generation_config.json cannot be read"):
        _imported(folder, tmp_path / "three")
    assert not (tmp_path / "three").exists()
    (tmp_path / "file").write_text("taken")
    with pytest.raises(gf.InputError, match=r"is a file: choose a folder"):
        _imported(folder, tmp_path / "file")


def test_an_imported_language_model_is_scored_as_transformers_does(language_model: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    run = _imported(language_model, tmp_path / "run")
    text = "the moon was big and bright"
    found = run.evaluate([(text, "")])
    tokens = torch.tensor([[run.special.start, *run.tokenizer.encode(text), run.special.end]])
    theirs = transformers.GPT2LMHeadModel.from_pretrained(language_model).eval()
    with torch.inference_mode():
        assert found.loss == pytest.approx(float(theirs(tokens, labels=tokens).loss), abs=1e-5)


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    """A small random BERT with its tokenizer, as `transformers` saves them."""
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for text in TEXTS for word in text.split()})]
    (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_attention_heads=2,
        num_hidden_layers=2,
        intermediate_size=24,
        max_position_embeddings=12,
        initializer_range=0.5,
    )
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path / "bert")
    vocabulary = {word: number for number, word in enumerate(words)}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_a_masked_language_model_is_imported_and_fills_gaps_as_in_transformers(
    command: Command, masked: Path, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    run, text = tmp_path / "run", "the [MASK] saw the cat"
    said = command("import", masked, run)
    assert "glassformer fill --run" in said.out
    (found,) = envelopes(command("fill", "--run", run, "--json", "--top", "3", text))
    tokenizer = transformers.AutoTokenizer.from_pretrained(masked)
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(masked).eval()
    inputs = tokenizer(text, return_tensors="pt")
    with torch.inference_mode():
        logits = theirs(**inputs).logits[0][inputs["input_ids"][0] == tokenizer.mask_token_id][0]
        logits[tokenizer.all_special_ids] = -torch.inf
    shares, ids = logits.softmax(dim=0).topk(3)
    assert [each["word"] for each in found["gaps"][0]] == [tokenizer.decode([number]) for number in ids.tolist()]
    assert [each["probability"] for each in found["gaps"][0]] == pytest.approx(shares.tolist(), abs=1e-5)
    long = command("fill", "--run", run, "--top", "1", stdin=f"{'the ' * 20}[MASK]\n{text}\n".encode())
    assert (long.code, len(long.out.splitlines())) == (2, 2)
    assert "the model reads 12" in long.err
    assert "AutoModelForMaskedLM" in command("export", "--run", run, tmp_path / "out").out
    again = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    with torch.inference_mode():
        torch.testing.assert_close(again(**inputs).logits, theirs(**inputs).logits, atol=1e-5, rtol=1e-5)
    (tmp_path / "t.txt").write_text("the dog saw the cat\n\na cat sat on the mat\n", encoding="utf-8")
    assert json.loads(command("evaluate", "--run", run, "--data", tmp_path / "t.txt", "--json").out)["hidden"] > 0


def test_prompts_leave_each_other_room(language_model: Path, tmp_path: Path) -> None:
    run = _imported(language_model, tmp_path / "run")
    long = "the moon was big and bright " * 4
    together = run.generate(["the dog", long, ""], length=30)
    alone = [run.generate([prompt], length=30)[0] for prompt in ("the dog", long, "")]
    assert [each.ids for each in together] == [each.ids for each in alone]
    assert "".join(run.stream("", length=30)) == together[2].text


def _imported(source: Path, folder: Path) -> Any:
    import_run(source, folder)
    return gf.load(folder, "cpu")


@pytest.mark.skipif(not WEIGHTS.is_dir(), reason="no real checkpoints beside this checkout, under ../shared/weights")
def test_real_checkpoints_tell_a_story_and_spell_words_aloud(command: Command, tmp_path: Path) -> None:
    stories, sounds = tmp_path / "stories", tmp_path / "sounds"
    command("import", WEIGHTS / "tinystories-llama-260k", stories)
    told = command("generate", "--run", stories, "Once upon a time, there was a little girl named", "--length", "10")
    assert told.out.startswith("Once upon a time, there was a little girl named Lily. She loved to play")
    command("import", WEIGHTS / "misaki-bart-g2p-us", sounds)
    spoken = command("translate", "--run", sounds, stdin=b"hello\ntransformer\nKubernetes\n")
    assert spoken.out.splitlines() == ["hˈɛlO", "tɹænsfˈɔɹməɹ", "kˌubəɹnˈits"]


def test_an_imported_language_model_writes_what_transformers_writes(language_model: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    run = import_run(language_model, tmp_path / "run")
    theirs = transformers.GPT2LMHeadModel.from_pretrained(language_model).eval()
    tokens = torch.tensor([run.tokenizer.encode("the dog")])
    with torch.inference_mode():
        written = theirs.generate(tokens, max_new_tokens=8, do_sample=False, pad_token_id=run.tokenizer.pad)
    found = gf.load(tmp_path / "run").generate(["the dog"], length=8)[0]
    assert found.ids == written[0, tokens.shape[1] :].tolist()[: len(found.ids)]
    assert (tmp_path / "run" / "special_tokens.json").is_file()


def test_a_checkpoint_that_no_task_can_use_is_a_sentence(command: Command, tmp_path: Path) -> None:
    interop.save(vit(None, image=8, patch=4, width=16, heads=2, layers=1, hidden=16), tmp_path / "vit")
    complains(command("import", tmp_path / "vit", tmp_path / "run"), 2, "no task can use this model")


def test_what_to_try_first_with_a_model_that_answers_is_a_question(
    command: Command, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    sizes: dict[str, Any] = {"width": 16, "heads": 2, "layers": 1, "hidden": 16, "length": 40}
    interop.save(bert(tokenizer.size, **sizes, answer="span"), tmp_path / "bert")
    tokenizer.save(tmp_path / "bert" / "tokenizer.json")
    answer = command("import", tmp_path / "bert", tmp_path / "run")
    assert answer.code == 0, answer.err
    told = f'next: glassformer answer --run {tmp_path / "run"} --context article.txt "Who wrote it?"'
    assert answer.out.splitlines()[-1] == told


def test_what_to_try_first_with_a_model_of_images_is_an_image(command: Command, tmp_path: Path) -> None:
    made = vit(3, image=8, patch=4, width=16, heads=2, layers=1, hidden=16)
    interop.save(made, tmp_path / "vit", {"id2label": {"0": "a", "1": "b", "2": "c"}})
    answer = command("import", tmp_path / "vit", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[-1] == f'next: glassformer classify --run {tmp_path / "run"} "image.png"'
