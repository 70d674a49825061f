"""The token at the end of a text that is also the padding token, and the ways in which it is learned."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, codes, findings

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
HEAD = (
    "import os\nfrom transformers import (AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling,\n"
    "    Trainer, TrainingArguments, default_data_collator, DataCollatorForSeq2Seq)\nimport trl\n"
    "words = AutoTokenizer.from_pretrained('mistralai/Mistral-7B-v0.1')\n"
)
PAD = "words.pad_token = words.eos_token\n"
ENDS = "def encode(row):\n    return words(row['text'] + words.eos_token)\n"
COLLATE = "collate = DataCollatorForLanguageModeling(words, mlm=False)\n"
TRAIN = (
    "model = AutoModelForCausalLM.from_pretrained('mistralai/Mistral-7B-v0.1')\n"
    "Trainer(model=model, args=TrainingArguments('/opt/ml/checkpoints'), train_dataset=data.map(encode),\n"
    "    data_collator=collate).train()\n"
    "model.generate(**start, pad_token_id=words.eos_token_id, eos_token_id=words.eos_token_id)\n"
    "model.save_pretrained(os.environ['SM_MODEL_DIR'])\n"
)


def script(pad: str = PAD, ends: str = ENDS, collate: str = COLLATE, head: str = HEAD) -> str:
    return head + pad + ends + collate + TRAIN


def encoded(text: str, before: str = "") -> str:
    return f"{before}def encode(row):\n    return words({text})\n"


WRONG = {
    "its number": script(pad="words.pad_token_id = words.eos_token_id\n"),
    "a special token": script(pad='words.add_special_tokens({"pad_token": words.eos_token})\n'),
    "an option of the tokenizer": script(pad="words = AutoTokenizer.from_pretrained('x', pad_token=words.eos_token)\n"),
    "only if the tokenizer has no padding token, which is so": script(pad=f"if words.pad_token is None:\n    {PAD}"),
    "or": script(pad="words.pad_token = words.pad_token or words.eos_token\n"),
    "a template": script(ends=encoded("LINE.format(text=row['text'], end=words.eos_token)", "LINE = '{text}{end}'\n")),
    "an f-string": script(ends=encoded("f\"{row['text']}{words.eos_token}\"")),
    "a name": script(ends=encoded("row['text'] + END", "END = words.eos_token\n")),
    "numbers": script(
        ends="def encode(row):\n    return {'input_ids': words(row['text']).input_ids + [words.eos_token_id]}\n"
    ),
    "a number, added": script(
        ends="def encode(row):\n    ids = words(row['text']).input_ids\n"
        "    ids.append(words.eos_token_id)\n    return ids\n"
    ),
    "a list of all": script(ends="def encode(row):\n    return [*words(row['text']).input_ids, words.eos_token_id]\n"),
    "an argument": script(
        ends="def line(row, end):\n    return row['text'] + end\n"
        "def encode(row):\n    return line(row, end=words.eos_token)\n"
    ),
    "written out": script(ends=encoded("row['text'] + '</s>'")),
    "written into the template": script(ends=encoded("f\"[INST] {row['ask']} [/INST] {row['text']}</s>\"")),
    "by the tokenizer": script(
        ends=encoded("row['text']"),
        head=HEAD.replace("v0.1')", "v0.1', add_eos_token=True)"),
    ),
    "TRL's": script(collate="collate = trl.DataCollatorForCompletionOnlyLM('### Answer:', tokenizer=words)\n"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_an_end_that_is_padding_is_never_learned(name):
    assert "TW557" in codes(WRONG[name], JOB)


def test_the_places_are_named():
    (found,) = [f for f in findings(script(), JOB) if f.code == "TW557"]
    lines = script().split("\n")
    padded, ended = (next(n for n, line in enumerate(lines, 1) if text in line) for text in (PAD.strip(), "+ words"))
    assert (found.severity, found.line) == ("warning", lines.index(COLLATE.strip()) + 1)
    assert f"line {padded} " in found.message
    assert f"line {ended} " in found.message


RIGHT = {
    "the texts have no end": script(ends=encoded("row['text']")),
    "only a message has it": script(ends=encoded("row['text']", "print('the end is ' + words.eos_token)\n")),
    "only what ends a generation has it": script(
        ends=encoded("row['text']", "stops = [words.eos_token_id] + words.encode('###')\n")
    ),
    "a comparison": script(ends=encoded("row['text'] if row['text'][-4:] == words.eos_token else ''")),
    "the unknown token": script(pad="words.pad_token = words.unk_token\n"),
    "a token of its own": script(pad='words.add_special_tokens({"pad_token": "<pad>"})\n'),
    "a reserved token": script(pad='words.pad_token = "<|reserved_special_token_0|>"\n'),
    "a token of its own, later": script(pad=PAD + 'words.pad_token = "<pad>"\n'),
    "only if the tokenizer has no padding token, which is not known": script(
        pad=f"if words.pad_token is None:\n    {PAD}",
        head=HEAD.replace("'mistralai/Mistral-7B-v0.1'", "os.environ['SM_CHANNEL_MODEL']"),
    ),
    "only if the tokenizer has no padding token, and OPT has one": script(
        pad=f"if words.pad_token is None:\n    {PAD}",
        head=HEAD.replace("mistralai/Mistral-7B-v0.1", "facebook/opt-350m"),
    ),
    "a configuration": script(pad="model.config.pad_token_id = words.eos_token_id\n"),
    "rows of the same length": script(collate="collate = default_data_collator\n"),
    "labels in the data": script(
        ends="def encode(row):\n    made = words(row['text'] + words.eos_token)\n"
        "    made['labels'] = list(made.input_ids)\n    return made\n",
        collate="collate = DataCollatorForSeq2Seq(words)\n",
    ),
    "a collate function of the script's own": script(
        collate="class Collate(DataCollatorForLanguageModeling):\n    def torch_call(self, rows):\n"
        "        return self.tokenizer.pad(rows)\ncollate = Collate(words, mlm=False)\n"
    ),
    "labels that are set after it": script(
        collate=COLLATE.replace("collate =", "masked =") + "def collate(rows):\n    batch = masked(rows)\n"
        "    batch['labels'] = batch['input_ids'].masked_fill(batch['attention_mask'] == 0, -100)\n    return batch\n"
    ),
    "masked words": script(collate="collate = DataCollatorForLanguageModeling(words)\n"),
}


@pytest.mark.parametrize("name", list(RIGHT))
def test_other_padding_and_other_labels(name):
    assert "TW557" not in codes(RIGHT[name], JOB)
