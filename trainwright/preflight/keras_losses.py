"""Keras: whether the loss fits what the last layer makes, and the form of the labels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from trainwright.core.findings import Finding, Rule
from trainwright.script.events import Event
from trainwright.script.script_facts import ScriptFacts
from trainwright.script.syntax import at
from trainwright.script.values import Value

LOGITS = Rule(
    code="TW466",
    severity="warning",
    title="the loss takes probabilities for logits, or logits for probabilities",
    source="Keras's API of CategoricalCrossentropy and its relatives, from_logits; keras/backend.py warns that the "
    "output was produced by a Softmax activation and thus does not represent logits",
    remedy="from_logits=True with a last layer without activation, or from_logits=False with softmax (sigmoid).",
)
LABELS = Rule(
    code="TW467",
    severity="error",
    title="the loss is for labels of another form: integers, or one-hot rows",
    source="Keras's API of CategoricalCrossentropy (one-hot labels) and SparseCategoricalCrossentropy (integers); "
    'with the other form ValueError "Shapes (None, 1) and (None, 10) are incompatible", or InvalidArgumentError',
    remedy="sparse_categorical_crossentropy for integers, categorical_crossentropy for to_categorical(labels).",
)
RULES = (LOGITS, LABELS)
LossKind = Literal["categorical", "sparse_categorical", "binary"]
_CROSSENTROPY = re.compile(r"^(sparse_categorical|categorical|binary)_?crossentropy$")
_MODELS = ("Sequential", "Model", "Functional")
_ONE_HOT = ("to_categorical", "one_hot", "get_dummies", "eye", "identity")
_ENCODERS = ("OneHotEncoder", "LabelBinarizer")
# What changes the type or the place of labels, and not their form.
_SAME_FORM = ("array", "asarray", "concatenate", "convert_to_tensor", "constant", "to_numpy", "ravel", "squeeze")
_INTEGER = re.compile(r"(^|\.)(u?int(8|16|32|64)?|long|int_)$")


def check(code: ScriptFacts) -> Iterator[Finding]:
    """Check the rules of this family."""
    if code.incomplete or not code.tensorflow:
        return
    keras = _Keras(code)
    compiled: dict[int, list[Event]] = {}
    for event in code.ran("compile"):
        if event.receiver is not None:
            compiled.setdefault(id(event.receiver), []).append(event)
            yield from keras.fits(event, event.arg("loss", 1), event.receiver)
    for event in code.events:
        if event.called is None or (len(event.args) < 2 and not event.keywords):
            continue
        given = event.arg("y_pred", 1)
        made = code.maker(given) if given is not None else None
        if made is not None and made.model is not None and keras.loss(event.called) is not None:
            yield from keras.fits(event, event.called, made.model)
    for event in code.ran("fit", live=True):
        before = [e for e in compiled.get(id(event.receiver), ()) if e.order < event.order]
        known = keras.loss(before[-1].arg("loss", 1)) if before else None
        # A function that makes the model is run once, and stands for all of its calls.
        again = [e for e in code.events if e.result is event.receiver and before and e.order > before[-1].order]
        if known is not None and not any(e.order < event.order for e in again):
            yield from keras.labelled(event, known[0])


class _Keras:
    """What a script makes with Keras."""

    def __init__(self, code: ScriptFacts) -> None:
        self.code = code

    def loss(self, value: Value | None) -> tuple[LossKind, bool] | None:
        """Return a cross-entropy and whether it expects logits; None of another loss."""
        if value is None:
            return None
        single, made = value.single(), self.code.maker(value)
        word = single if isinstance(single, str) else (value.name or next(iter(value.made), "")).rpartition(".")[2]
        found = _CROSSENTROPY.match(re.sub("(?<=[a-z])(?=[A-Z])", "_", word).lower())
        if found is None or value.tags & {"flag"}:
            return None
        kind: LossKind = found[1]  # type: ignore[assignment]
        if isinstance(single, str) or value.name:
            return kind, False
        if made is None or made.opened:
            return None
        logits = made.arg("from_logits", 0)
        known = False if logits is None else logits.single()
        return (kind, known) if isinstance(known, bool) else None

    def fits(self, event: Event, loss: Value | None, model: Value) -> Iterator[Finding]:
        """Report a loss that takes the last layer's output for something else."""
        expected, last = self.loss(loss), self._last(model)
        if expected is None or last is None:
            return
        kind, logits = expected
        activation = _activation(last)
        squashes = ("sigmoid",) if kind == "binary" else ("softmax",)
        if logits and activation in squashes:
            what = f"from_logits=True, but the last layer, in line {last.line}, has {activation} already"
        elif not logits and activation == "linear":
            what = f"the loss expects probabilities, but the last layer, in line {last.line}, has no activation"
        else:
            return
        yield at(LOGITS, event, what)

    def _last(self, model: Value, depth: int = 0) -> Event | None:
        """Return the call that made the last layer of a model, or applied the last function; None if unknown."""
        if depth > 4:
            return None
        made = self.code.maker(model)
        if model.code is not None and (call := model.code.method("call")) is not None:
            returned = self.code.returned(call)
            return self._applied(returned, depth) if returned is not None else None
        if made is None or made.last not in _MODELS or made.opened:
            return self._layer(made)
        if made.last == "Sequential":
            given = made.arg("layers", 0)
            added = [e for e in self.code.ran("add", live=True) if e.receiver is model]
            layers = [] if given is None else list(given.items or ())
            known = (given is None or given.items is not None) and not any(e.guards or e.loops for e in added)
            layers += [e.args[0] for e in added if e.args]
            changed = any(e.receiver is model for e in self.code.ran("pop"))
            return self._last(layers[-1], depth + 1) if layers and known and not changed else None
        outputs = made.arg("outputs", 1)
        return self._applied(outputs, depth) if outputs is not None else None

    def _applied(self, output: Value, depth: int) -> Event | None:
        made = self.code.maker(output)
        if made is None or made.called is None:
            return self._layer(made)
        return self._last(made.called, depth + 1)

    @staticmethod
    def _layer(made: Event | None) -> Event | None:
        known = made is not None and ("keras" in made.name or made.name.startswith("tensorflow.nn."))
        return made if known and made is not None and not made.opened else None

    # ---- labels ------------------------------------------------------------------------------------------------------

    def labelled(self, event: Event, kind: LossKind) -> Iterator[Finding]:
        """Report labels of another form than the loss is for."""
        data, labels = event.arg("x", 0), event.arg("y", 1)
        form = self._form_in(data) if labels is None and data is not None else self._form(labels)
        if kind == "categorical" and form in ("integers", "integers by their type"):
            cast = form == "integers by their type"  # one-hot rows may have such a type, too
            what = "categorical_crossentropy expects one-hot labels, and these are integers"
            yield at(LABELS, event, what, severity="warning" if cast else None)
        elif kind == "sparse_categorical" and form == "one-hot":
            what = "sparse_categorical_crossentropy expects integers, and the labels are one-hot"
            yield at(LABELS, event, what)

    def _form(self, labels: Value | None, depth: int = 0) -> str:
        """Return ``one-hot``, ``integers``, ``integers by their type``, or nothing if that is not known."""
        if labels is None or depth > 9:
            return ""
        if any("keras.datasets" in made for made in labels.made):
            return "integers"
        made = self.code.maker(labels)
        if made is None:
            return self._form(labels.of, depth + 1)
        receiver = made.receiver if made.receiver is not None and not made.receiver.name else None
        encoder = receiver if receiver is not None and made.last in ("transform", "fit_transform") else Value()
        if made.last in _ONE_HOT or encoder.made_by(*_ENCODERS):
            return "one-hot"
        if made.last == "argmax" or encoder.made_by("LabelEncoder"):
            return "integers"
        return self._changed(made, receiver, depth + 1)

    def _changed(self, made: Event, receiver: Value | None, depth: int) -> str:
        """Return the form of labels that were given another type or place."""
        source = receiver if receiver is not None else made.args[0] if made.args else None
        if made.last in ("astype", "cast"):
            kind = made.arg("dtype", 0 if receiver is not None else 1) or Value()
            return self._form(source, depth) or ("integers by their type" if _integer(kind) else "")
        return self._form(source, depth) if made.last in _SAME_FORM else ""

    def _form_in(self, data: Value, depth: int = 8) -> str:
        """Return the form of the labels in a data set."""
        made = self.code.maker(data)
        changed = [e for e in self.code.ran("map", "apply", "flat_map", "interleave") if e.receiver is data]
        if changed:
            given = changed[-1].args[0] if changed[-1].args else Value()
            lambda_ = (given.attrs or {}).get("(returned)")
            returned = self.code.returned(given.code) if given.code is not None else lambda_
            items = returned.items if returned is not None else None
            return self._form(items[1]) if items is not None and len(items) == 2 else ""
        if made is None:
            return ""
        if made.last in ("shuffle", "repeat", "take") and made.receiver is not None:
            return self._form_in(made.receiver, depth - 1) if depth else ""
        if made.last == "from_tensor_slices" and made.args and made.args[0].items and len(made.args[0].items) == 2:
            return self._form(made.args[0].items[1])
        option, default = _FOLDERS.get(made.last, ("", ""))
        mode = made.arg(option) if option else None
        known = default if mode is None else mode.single()
        return {"int": "integers", "sparse": "integers", "categorical": "one-hot"}.get(str(known), "")


# What reads images from folders, the argument for the labels, and its default.
_FOLDERS = {
    "image_dataset_from_directory": ("label_mode", "int"),
    "text_dataset_from_directory": ("label_mode", "int"),
    "flow_from_directory": ("class_mode", "categorical"),
    "flow_from_dataframe": ("class_mode", "categorical"),
}


def _integer(kind: Value) -> bool:
    single = kind.single()
    return bool(_INTEGER.search(single if isinstance(single, str) else kind.name))


def _activation(layer: Event) -> str:
    """Return the activation of a layer, or a function itself: ``softmax``, ``linear`` for none; or nothing."""
    if layer.last in ("softmax", "sigmoid", "Softmax"):
        return layer.last.lower()
    place = {"Dense": 1, "Activation": 0}.get(layer.last)
    if place is None:
        return ""
    given = layer.arg("activation", place)
    if given is None:
        return "linear"
    single = given.single()
    if single is None:
        return "linear"
    return single if isinstance(single, str) else given.name.rpartition(".")[2]
