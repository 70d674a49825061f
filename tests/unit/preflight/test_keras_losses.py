"""Keras: a loss and the last layer, a loss and the labels.

Sources: Keras's API of the cross-entropy losses (from_logits; "We expect labels to be provided as integers", "in a
one_hot representation"), of to_categorical, of image_dataset_from_directory (label_mode) and flow_from_directory
(class_mode), and of keras.datasets.mnist.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import Case, but, unmet

ONE: dict[str, Any] = {"instance_type": "ml.g5.2xlarge", "plan": {"framework": "tensorflow"}}
KERAS = (
    "import numpy as np\nimport pandas as pd\nimport tensorflow as tf\nfrom sklearn import preprocessing\n"
    "from tensorflow import keras\nfrom tensorflow.keras import layers\n"
    "from tensorflow.keras.utils import to_categorical\n{head}\nmodel = {model}\n{more}\n"
    "model.compile('adam', loss={loss}, metrics=['accuracy'])\n{fit}\n"
)


def keras(last: str = "layers.Dense(10)", loss: str = "'mse'", *edits: str, **given: str) -> str:
    """A model with this last layer and loss, and labels that are not known."""
    usual = {"head": "", "model": f"keras.Sequential([layers.Flatten(), {last}])", "more": "", "fit": "model.fit(x, y)"}
    return but(KERAS.format(loss=loss, **{**usual, **given}), *edits)


SOFT = "layers.Dense(10, activation='softmax')"
SPARSE = "tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)"
PLAIN = "keras.losses.SparseCategoricalCrossentropy()"
WORD = "'sparse_categorical_crossentropy'"
API = "keras.Model(inputs, {})"
OWN = (
    "class Net(keras.Model):\n    def __init__(self):\n        super().__init__()\n        self.out = {}\n"
    "    def call(self, x):\n        return self.out(x)"
)
LOOP = (
    "loss_fn = {}\nfor x, y in rows:\n    with tf.GradientTape() as tape:\n        out = model(x, training=True)\n"
    "        loss = loss_fn(y, out)\n    grads = tape.gradient(loss, model.trainable_variables)\n"
)
ADDED = "model.add(layers.Flatten())\nmodel.add({})"
BUILT = "def build():\n    net = keras.Sequential([layers.Flatten(), {}])\n    return net"
LAYERS: list[Case] = [
    ("TW466", reported, script, ONE)
    for reported, script in (
        (11, keras(SOFT, SPARSE)),
        ("warning", keras(SOFT, SPARSE)),
        (True, keras("layers.Dense(10, 'softmax')", SPARSE)),
        (True, keras("layers.Dense(10, activation=tf.nn.softmax)", SPARSE)),
        (True, keras("layers.Dense(10), layers.Softmax()", SPARSE)),
        (True, keras("layers.Dense(10), layers.Activation('softmax')", SPARSE)),
        (True, keras(SOFT, "keras.losses.CategoricalCrossentropy(True)")),
        (True, keras("layers.Dense(1, activation='sigmoid')", "keras.losses.BinaryCrossentropy(from_logits=True)")),
        (True, keras(loss=SPARSE, model="keras.Sequential()", more=ADDED.format(SOFT))),
        (True, keras(loss=SPARSE, model=API.format(f"{SOFT}(inputs)"))),
        (True, keras(loss=SPARSE, model=API.format("tf.nn.softmax(layers.Dense(10)(inputs))"))),
        (True, keras(loss=SPARSE, model=f"keras.Model(inputs=inputs, outputs={SOFT}(inputs))")),
        (True, keras(loss=SPARSE, head=OWN.format(SOFT), model="Net()")),
        (True, keras(loss=SPARSE, head=BUILT.format(SOFT), model="build()")),
        (True, keras(f"keras.Sequential([{SOFT}])", SPARSE)),
        (True, keras(SOFT, "loss_fn", head=f"loss_fn = {SPARSE}")),
        (True, keras(SOFT, fit=LOOP.format(SPARSE))),
        # The other way round.
        (True, keras(loss=PLAIN)),
        (True, keras(loss=WORD)),
        (True, keras(loss="'categorical_crossentropy'")),
        (True, keras(loss="keras.losses.sparse_categorical_crossentropy")),
        (True, keras("layers.Dense(1)", "'binary_crossentropy'")),
        (True, keras("layers.Dense(10, activation=None)", PLAIN)),
        (True, keras("layers.Dense(10, activation='linear')", PLAIN)),
        (True, keras(fit=LOOP.format(PLAIN))),
        (True, keras(loss=PLAIN, head=OWN.format("layers.Dense(10)"), model="Net()")),
        (False, keras(loss=SPARSE)),
        (False, keras(SOFT, PLAIN)),
        (False, keras(SOFT, WORD)),
        (False, keras("layers.Dense(1, activation='sigmoid')", "'binary_crossentropy'")),
        (False, keras(SOFT, "keras.losses.CategoricalCrossentropy(from_logits=logits)")),
        (False, keras("layers.Dense(10, activation=chosen)", PLAIN)),
        (False, keras("layers.Dense(10), layers.Activation('softmax', dtype='float32')", PLAIN)),
        (False, keras("layers.Dense(10), layers.Lambda(scale)", PLAIN)),
        (False, keras("layers.Dense(10), head", PLAIN)),
        (False, keras()),
        (False, keras(loss="'mean_squared_error'")),
        (False, keras(loss="own_loss")),
        (False, keras(loss=PLAIN, model="keras.Sequential()",
                      more="model.add(layers.Dense(10))\nif chosen:\n    model.add(layers.Softmax())")),
        (False, keras(loss=PLAIN, model="keras.Sequential(rows)")),
        (False, keras(loss=PLAIN, model="keras.Model(inputs, [layers.Dense(10)(a), layers.Dense(2)(b)])")),
        (False, keras(fit=LOOP.format(SPARSE))),
        (False, keras(SOFT, fit=LOOP.format(PLAIN))),
        # Probabilities for the user alone, from a model that was trained on logits.
        (False, keras(loss=SPARSE, fit="model.fit(x, y)\nuser = keras.Sequential([model, layers.Softmax()])")),
    )
]  # fmt: skip
MNIST = "(x, y), (a, b) = keras.datasets.mnist.load_data()"
FROM = "rows = tf.data.Dataset.from_tensor_slices((x, {})).shuffle(9).batch(8)"
FOLDER = "rows = keras.utils.image_dataset_from_directory('/opt/ml/input/data/train'{})"
IMAGES = "rows = keras.preprocessing.image.ImageDataGenerator().flow_from_directory('/opt/ml/input/data/train'{})"
ROWS = "model.fit(rows)"
HOT = f"{MNIST}\ny = to_categorical(y)\n{BUILT.format(SOFT)}"
AGAIN = f"model.compile('adam', {WORD})"
CATEGORICAL = "'categorical_crossentropy'"
MAPPED = "rows = source.map(prepare).batch(8)\ndef other():\n    pass"
PREPARE = "def prepare(x, y):\n    return x, {}\nrows = tf.data.TFRecordDataset(files).map(prepare)"


def labels(loss: str, head: str, **given: str) -> str:
    """A model for classes, trained on these labels."""
    return keras(SOFT, loss, head=head, **given)


LABELS: list[Case] = [
    ("TW467", reported, script, ONE)
    for reported, script in (
        ("error", labels(CATEGORICAL, MNIST)),
        (True, labels("keras.losses.CategoricalCrossentropy()", MNIST)),
        (True, labels("keras.losses.categorical_crossentropy", MNIST)),
        (True, labels(CATEGORICAL, f"{MNIST}\ny = y.reshape(-1)[:100]")),
        (True, labels(CATEGORICAL, f"{MNIST}\ny = y.astype('float32')")),
        (True, labels(CATEGORICAL, MNIST, fit="model.fit(x=x, y=y)")),
        (True, labels(CATEGORICAL, "y = np.argmax(rows, axis=1)")),
        (True, labels(CATEGORICAL, "y = preprocessing.LabelEncoder().fit_transform(words)")),
        (True, labels(CATEGORICAL, f"{MNIST}\n{FROM.format('y')}", fit=ROWS)),
        (True, labels(CATEGORICAL, FOLDER.format(""), fit=ROWS)),
        (True, labels(CATEGORICAL, FOLDER.format(", label_mode='int'"), fit=ROWS)),
        (True, labels(CATEGORICAL, IMAGES.format(", class_mode='sparse'"), fit=ROWS)),
        # One-hot rows may have an integer type, too.
        ("warning", labels(CATEGORICAL, "y = np.load(path).astype(np.int64)")),
        ("warning", labels(CATEGORICAL, "y = np.load(path).astype('int32')")),
        ("warning", labels(CATEGORICAL, "y = np.load(path).astype(int)")),
        ("warning", labels(CATEGORICAL, "y = tf.cast(source, tf.int64)")),
        ("warning", labels(CATEGORICAL, "def load():\n    return a, np.load(path).astype(int)\nx, y = load()")),
        ("error", labels(WORD, f"{MNIST}\ny = to_categorical(y, 10)")),
        (True, labels(PLAIN, "y = keras.utils.to_categorical(source)")),
        (True, labels(WORD, "y = tf.one_hot(source, 10)")),
        (True, labels(WORD, "y = pd.get_dummies(source).values.astype(int)")),
        (True, labels(WORD, "y = np.eye(10)[source]")),
        (True, labels(WORD, "y = preprocessing.LabelBinarizer().fit_transform(words)")),
        (True, labels(WORD, FROM.format("to_categorical(source)"), fit=ROWS)),
        (True, labels(WORD, IMAGES.format(""), fit=ROWS)),
        (True, labels(WORD, FOLDER.format(", label_mode='categorical'"), fit=ROWS)),
        (True, labels(WORD, PREPARE.format("tf.one_hot(y, 10)"), fit=ROWS)),
        (True, labels(CATEGORICAL, f"{MNIST}\n{FROM.format('y')}", fit="model.fit(rows.repeat(), steps_per_epoch=9)")),
        (False, labels(WORD, "y = preprocessing.LabelBinarizer().inverse_transform(rows)")),
        (False, labels(CATEGORICAL, "y = source.astype(dtype)")),
        # A function makes the model of each loss.
        (False, labels("own", HOT, model="build()", fit=f"model.fit(x, y)\nmodel = build()\n{AGAIN}")),
        (
            False,
            labels(
                "own", HOT, model="build()", more=AGAIN.replace("\n", "") + "\nmodel = build()", fit="model.fit(x, y)"
            ),
        ),
        (False, labels(WORD, MNIST)),
        (False, labels(CATEGORICAL, f"{MNIST}\ny = to_categorical(y, 10)")),
        (False, labels(CATEGORICAL, f"{MNIST}\ny = to_categorical(y, 10).astype(int)")),
        (False, labels(CATEGORICAL, f"{MNIST}\ny = np.eye(10)[y]")),
        (False, labels(CATEGORICAL, f"{MNIST}\ny = encode(y)")),
        (False, labels(CATEGORICAL, "y = pd.get_dummies(source).values.astype(int)")),
        (False, labels(CATEGORICAL, "y = preprocessing.OneHotEncoder().fit_transform(words).astype(int)")),
        (False, labels(CATEGORICAL, "y = np.load(path)")),
        (False, labels(CATEGORICAL, "y = np.load(path).astype(np.float32)")),
        (False, labels(CATEGORICAL, "x = np.load(path).astype(int)")),
        (False, labels(CATEGORICAL, f"{MNIST}\n{FROM.format('y')}\nrows = rows.map(prepare)", fit=ROWS)),
        (False, labels(CATEGORICAL, PREPARE.format("tf.one_hot(y, 10)"), fit=ROWS)),
        (False, labels(CATEGORICAL, FOLDER.format(", label_mode='categorical'"), fit=ROWS)),
        (False, labels(CATEGORICAL, FOLDER.format(", label_mode=mode"), fit=ROWS)),
        (False, labels(CATEGORICAL, IMAGES.format(""), fit=ROWS)),
        (False, labels(WORD, FOLDER.format(""), fit=ROWS)),
        (False, labels(WORD, "y = np.load(path).astype(int)")),
        (False, labels(WORD, "y = np.argmax(to_categorical(source), axis=1)")),
        (False, labels("'mse'", f"{MNIST}\ny = to_categorical(y)")),
    )
]


@pytest.mark.parametrize("case", LAYERS, ids=range(len(LAYERS)))
def test_a_loss_fits_the_last_layer(case: Case) -> None:
    assert not unmet(case), unmet(case)


@pytest.mark.parametrize("case", LABELS, ids=range(len(LABELS)))
def test_a_loss_fits_the_labels(case: Case) -> None:
    assert not unmet(case), unmet(case)
