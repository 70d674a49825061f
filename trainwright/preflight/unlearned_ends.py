"""Language models that never learn where a text ends, because the collate function treats its last token as padding."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from trainwright.core.findings import Finding, Rule
from trainwright.preflight.trainer_arguments import WITHOUT_PAD
from trainwright.script.events import Event
from trainwright.script.reader import Module
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import ancestors, at, meant, qualified

NEVER_LEARNED = Rule(
    code="TW557",
    severity="warning",
    title="the end-of-text token is never learned: it is also the padding token, which is left out of the loss",
    source="transformers, data_collator.py, DataCollatorForLanguageModeling: labels of the padding token are -100; "
    "huggingface/transformers #23530, huggingface/trl #976",
    remedy='A padding token of its own (tokenizer.add_special_tokens({"pad_token": "<pad>"}) and '
    "model.resize_token_embeddings(len(tokenizer))), or DataCollatorForSeq2Seq with labels in the data.",
)
RULES = (NEVER_LEARNED,)
Passage = tuple[Module, ast.expr | ast.stmt]
# TRL's is derived from that of transformers (trl/trainer/utils.py).
_COLLATORS = re.compile(
    r"^transformers\.([\w.]+\.)?DataCollatorForLanguageModeling$|^trl\.([\w.]+\.)?\w+CompletionOnlyLM$"
)
_PAD, _END = ("pad_token", "pad_token_id"), ("eos_token", "eos_token_id")
# The token as the tokenizers of these models write it.
_WRITTEN = {
    "</s>": re.compile(r"llama-?2|/llama-7b|mistral|mixtral|vicuna|zephyr|(^|/)opt-|bloom", re.I),
    "<|endoftext|>": re.compile(r"gpt2|gpt-neo|gpt-j|pythia|falcon|(^|/)phi-", re.I),
}
_PUTS = ("format", "replace", "append", "extend", "cat", "concatenate")
_CONVERTS = ("tensor", "as_tensor", "full", "array", "list", "str")
# A message, or what ends a generation.
_SHOWN = re.compile(r"^\W*(raise|assert)\b|\bprint\(|\blog(ger|ging)?\.|warn|stop|terminator|bad_words", re.I)


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or code.imports("transformers") is None:
        return
    collators = [e for e in code.ran("DataCollatorForLanguageModeling", live=True) if _masks(e)]
    collators += [e for e in code.ran("DataCollatorForCompletionOnlyLM", live=True) if _masks(e)]
    padded = _padded(code) if collators and not _labelled(code) else None
    appended = _appended(code) if padded is not None else None
    if padded is not None and appended is not None:
        ends = f"{_at(collators[0], padded)} sets it to the token that {_at(collators[0], appended)} appends to texts"
        yield at(NEVER_LEARNED, collators[0], f"`{collators[0].text}` leaves the padding token out of the loss: {ends}")


def _at(event: Event, place: Passage) -> str:
    module, node = place
    return f"line {node.lineno}" + ("" if module is event.module else f" of {module.name}")


def _masks(event: Event) -> bool:
    mlm = event.arg("mlm", 1) if event.last == "DataCollatorForLanguageModeling" else event.arg("mlm")
    default = event.last == "DataCollatorForCompletionOnlyLM"
    return (
        bool(_COLLATORS.match(event.name)) and not event.opened and (default if mlm is None else mlm.single() is False)
    )


def _labelled(code: ScriptFacts) -> bool:
    """Return whether the script sets labels itself."""
    for module in code.modules:
        for node in module.nodes:
            keys = node.keys if isinstance(node, ast.Dict) else []
            keys = [node.slice] if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) else keys
            if any(isinstance(key, ast.Constant) and key.value == "labels" for key in keys):
                return True
    return False


def _models(code: ScriptFacts) -> str:
    """Return the names of the models whose tokenizers the script loads, one a line."""
    loads = [e.arg("pretrained_model_name_or_path", 0) for e in code.ran("from_pretrained") if "Tokenizer" in e.name]
    return "\n".join(str(name) for value in loads if value is not None for name in value.constants or ())


def _padded(code: ScriptFacts) -> Passage | None:
    """Return where the end of a text becomes the padding token; None if that may be another one."""
    found = None
    for module in code.modules:
        for node in module.nodes:
            for value in _paddings(module, node):
                chosen = value.values[-1] if isinstance(value, ast.BoolOp) else value
                asked = chosen is not value or any(
                    isinstance(outer, ast.If) and "pad_token" in ast.unparse(outer.test)
                    for outer in ancestors(module, node)
                )
                if not _is_end(meant(module, chosen)) or (asked and not WITHOUT_PAD.search(_models(code))):
                    return None
                found = (module, value)
    return found


def _paddings(module: Module, node: ast.AST) -> Iterator[ast.expr]:
    """Yield what becomes the padding token of a tokenizer."""
    if isinstance(node, ast.Assign):
        yield from (node.value for each in node.targets if _of_tokenizer(each, _PAD))
    elif isinstance(node, ast.Call):
        name = qualified(module, node.func)
        if name.endswith(".add_special_tokens"):
            for each in (n for n in ast.walk(node) if isinstance(n, ast.Dict)):
                pairs = zip(each.keys, each.values, strict=True)
                yield from (v for key, v in pairs if isinstance(key, ast.Constant) and key.value == "pad_token")
        elif name.endswith("Tokenizer.from_pretrained"):
            yield from (k.value for k in node.keywords if k.arg == "pad_token")


def _of_tokenizer(node: ast.expr, names: tuple[str, ...]) -> bool:
    """Return whether an attribute with one of these names is a tokenizer's, not that of a configuration."""
    if not isinstance(node, ast.Attribute) or node.attr not in names:
        return False
    return re.search("config|model", ast.unparse(node.value)) is None


def _is_end(node: ast.expr) -> bool:
    return _of_tokenizer(node, _END)


def _appended(code: ScriptFacts) -> Passage | None:
    """Return where the script puts the token at the end of its texts, or lets the tokenizer do it."""
    aliases: set[str] = set()
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.Assign) and _is_end(node.value):
                aliases |= {each.id for each in node.targets if isinstance(each, ast.Name)}
            elif isinstance(node, ast.keyword) and node.arg and _is_end(node.value):
                aliases.add(node.arg)
    for module in code.modules:
        for node in module.nodes:
            if isinstance(node, ast.keyword) and node.arg == "add_eos_token" and _is_true(node.value):
                return module, node.value
            if (
                isinstance(node, ast.Assign)
                and _of_tokenizer(node.targets[0], ("add_eos_token",))
                and _is_true(node.value)
            ):
                return module, node
            named = isinstance(node, ast.Name) and node.id in aliases and isinstance(node.ctx, ast.Load)
            if isinstance(node, ast.expr) and (named or _is_end(node)) and _joined(module, node):
                return module, node
    for token, models in _WRITTEN.items():
        for module, text in code.texts if models.search(_models(code)) else ():
            whole = str(text.value).strip()
            if whole.endswith(token) and (whole != token or _joined(module, text)):
                return module, text
    return None


def _is_true(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _joined(module: Module, node: ast.expr) -> bool:
    """Return whether a token, or its number, is put into a text or a list of numbers."""
    joined = False
    for outer in ancestors(module, node):
        if isinstance(outer, ast.stmt):
            return (joined or _puts(outer)) and not _SHOWN.search(ast.unparse(outer).split("\n")[0])
        joined = joined or _puts(outer)
        passed = isinstance(outer, ast.Call) and ast.unparse(outer.func).rpartition(".")[2] in _CONVERTS
        if not joined and isinstance(outer, ast.Call | ast.Compare) and not passed:
            return False
    return False


def _puts(node: ast.AST) -> bool:
    """Return whether an expression or a statement makes a longer text, or a longer list, of its parts."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return isinstance(node.op, ast.Add)
    if isinstance(node, ast.List):
        return any(isinstance(each, ast.Starred) for each in node.elts)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2] in _PUTS
    return isinstance(node, ast.JoinedStr)
