"""TensorFlow's strategies: hosts that train together, what belongs into the scope, what every worker does.

Source: TensorFlow's guides for distributed training and for multi-worker training with Keras.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import P4D, TORCHRUN, Case, but, unmet

HEAD = "import tensorflow as tf\n"
MULTI = HEAD + "strategy = tf.distribute.MultiWorkerMirroredStrategy()\n"
OWN_SERVERS = (
    HEAD
    + "cluster = tf.train.ClusterSpec({'chief': ['a:1'], 'worker': ['b:1'], 'ps': ['c:1']})\n"
    + "resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster, task_type='chief', task_id=0)\n"
    + "strategy = tf.distribute.ParameterServerStrategy(resolver)\n"
)
MIRRORED = HEAD + "strategy = tf.distribute.MirroredStrategy()\n"
BUILT = (
    "with strategy.scope():\n    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
    "    model.compile(optimizer='adam', loss='mse')\n"
)
FIT = "model.fit(data)\n"
ONE: dict[str, Any] = {"instance_type": P4D, "plan": {"framework": "tensorflow"}}
TWO = ONE | {"instance_count": 2}
MWMS = TWO | {"distribution": {"multi_worker_mirrored_strategy": {"enabled": True}}}
SERVERS = TWO | {"distribution": {"parameter_server": {"enabled": True}}}
MPI = TWO | {"distribution": {"mpi": {"enabled": True, "processes_per_host": 8}}}
CONFIGURED = TWO | {"environment": {"TF_CONFIG": "{}"}}
TORCH = {"instance_type": P4D, "instance_count": 2, "distribution": TORCHRUN}

HOSTS: list[Case] = [
    ("TW187", 2, MULTI + BUILT + FIT, TWO),
    ("TW187", True, MULTI + BUILT + FIT, MPI),
    *[("TW187", reported, HEAD + f"strategy = tf.distribute.{name}()\n" + BUILT + FIT, TWO) for reported, name in (
        (True, "experimental.MultiWorkerMirroredStrategy"), (True, "experimental.ParameterServerStrategy"),
        (True, "ParameterServerStrategyV2"), (True, "TPUStrategy"), (False, "MirroredStrategy"),
        (False, "OneDeviceStrategy"),
    )],
    ("TW187", False, MULTI + BUILT + FIT, MWMS),
    ("TW187", True, MULTI + BUILT + FIT, SERVERS),
    ("TW187", False, MULTI + BUILT + FIT, SERVERS | {"instance_count": 1}),
    ("TW187", False, MULTI + BUILT + FIT.replace("model.fit", "tf.estimator.train_and_evaluate"), SERVERS),
    ("TW187", False, OWN_SERVERS + BUILT + FIT, SERVERS),
    ("TW187", False, OWN_SERVERS + BUILT + FIT, TWO),
    ("TW187", False, MULTI + BUILT + FIT, CONFIGURED),
    ("TW187", False, MULTI + BUILT + FIT, ONE),
    ("TW187", False, MULTI + BUILT + FIT, None),
    ("TW187", False, MULTI + BUILT + "model.predict(data)\n", TWO),
    ("TW187", False, MULTI + BUILT + "def later():\n    model.fit(data)\n", TWO),
    # The launcher starts them together, and nothing in the script does.
    ("TW188", 2, MIRRORED + BUILT + FIT, MWMS),
    ("TW188", 3, HEAD + "model = tf.keras.Sequential([])\nmodel.fit(data)\n", MWMS),
    ("TW188", True, MIRRORED + BUILT + FIT, MWMS | {"instance_count": 1}),
    ("TW188", False, MULTI + BUILT + FIT, MWMS),
    ("TW188", 2, MIRRORED + BUILT + FIT, TWO),
    ("TW188", 3, HEAD + "model = tf.keras.Sequential([])\nmodel.fit(data)\n", TWO),
    ("TW188", True, MIRRORED + BUILT + FIT, MPI),
    ("TW188", True, MIRRORED + BUILT + FIT, SERVERS),
    ("TW188", 3, HEAD + "model = tf.keras.Sequential([])\nmodel.fit(data)\n", SERVERS),
    ("TW188", False, HEAD + "model = tf.keras.Sequential([])\nmodel.fit(data)\n", SERVERS | {"instance_count": 1}),
    ("TW188", False, HEAD + "server = tf.train.Server(cluster)\nmodel.fit(data)\n", SERVERS),
    ("TW188", False, MIRRORED + BUILT + FIT, TORCH),
    ("TW188", False, MIRRORED + BUILT + FIT, ONE),
    ("TW188", False, MULTI + BUILT + FIT, CONFIGURED),
    ("TW188", False, MIRRORED + BUILT + FIT + "store = KVStore()\n", TWO),
    *[("TW188", reported, MIRRORED + step, TWO) for reported, step in (
        (True, "model.fit(data)\n"), (True, "opt.apply_gradients(pairs)\n"),
        (True, "tf.estimator.train_and_evaluate(estimator, train, test)\n"), (False, "model.evaluate(data)\n"),
        (False, "if args.hvd:\n    import horovod.tensorflow as hvd\nmodel.fit(data)\n"),
        (False, "import smdistributed.modelparallel.tensorflow as smp\nmodel.fit(data)\n"),
    )],
]  # fmt: skip


def config(index: str, where: str = "os.environ") -> str:
    head = "import json, os\nfrom os import environ\n"
    return (
        f"{head}{where}['TF_CONFIG'] = json.dumps({{'cluster': all, 'task': {{'type': 'worker', 'index': {index}}}}})\n"
    )


CLUSTERS: list[Case] = [
    ("TW187", True, config("0") + MULTI + BUILT + FIT, MWMS),
    ("TW187", True, config("0", "environ") + MULTI + BUILT + FIT, MWMS),
    ("TW187", False, config("0", "settings") + MULTI + BUILT + FIT, MWMS),
    ("TW187", False, config("hosts.index(host)") + MULTI + BUILT + FIT, MWMS),
    ("TW187", False, config("0") + MULTI + BUILT + FIT, MWMS | {"instance_count": 1}),
    ("TW187", False, config("0") + MIRRORED + BUILT + FIT, MWMS),
    ("TW187", False, config("0").replace("os.environ[", "if alone:\n    os.environ[") + MULTI + BUILT + FIT, MWMS),
    ("TW187", False, config("n, 'rack': 0") + MULTI + BUILT + FIT, MWMS),
    ("TW187", False, config("n").replace("'cluster': all", "'other': {'index': 0}") + MULTI + BUILT + FIT, MWMS),
    ("TW187", True, config("0").replace("'cluster': all", "**base, kind: 1") + MULTI + BUILT + FIT, MWMS),
    # The strategy has read it when it is set.
    ("TW187", True, MULTI + config("n") + BUILT + FIT, MWMS),
    ("TW187", False, config("n") + MULTI + BUILT + FIT, MWMS),
    (
        "TW187",
        False,
        MULTI + "import json, os\ndef setup():\n    os.environ['TF_CONFIG'] = json.dumps(each)\n" + FIT,
        MWMS,
    ),
]
INDEX = "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
KEEPS = "more = []\n"
KEPT = "tf.keras.callbacks.ModelCheckpoint(path)"
CHIEF: list[Case] = [
    *[("TW168", reported, MULTI + BUILT + f"import json, os\n{INDEX}if index == 0:\n    {line}\n", MWMS)
      for reported, line in (
        (True, "model.save(path)"), (True, "model.save_weights(path)"), (True, "model.evaluate(data)"),
        (True, "model.fit(data)"), (True, "trainer.fit(data)"), (False, "model.summary()"),
        (False, "picture.save(path)"), (False, "save(model)"), (False, "fit(model)"),
    )],
    *[("TW168", reported, MULTI + BUILT + script, MWMS) for reported, script in (
        (False, "model.save(path)\n"),
        (True, "if kind == 'chief':\n    model.save(path)\n"),
        (False, "if kind == 'chief':\n    print(path)\nelse:\n    model.save(other)\n"),
        (False, "if found:\n    model.save(path)\n"),
        (True, "if found:\n    if kind == 'chief':\n        model.save(path)\n"),
        (False, "def later():\n    if kind == 'chief':\n        model.save(path)\n"),
        ("warning", "kept = tf.train.CheckpointManager(point, path, 3)\nif kind == 'chief':\n    kept.save()\n"),
        (False, "kept = tf.train.CheckpointManager(point, path, 3)\nkept.save()\n"),
        ("warning", f"{KEEPS}if kind == 'chief':\n    more.append({KEPT})\nmodel.fit(data, callbacks=more)\n"),
        ("error", f"tf.keras.layers.BatchNormalization()\nmore = [{KEPT}] if kind == 'chief' else []\n"
                  "model.fit(data, callbacks=more)\n"),
        (False, f"{KEEPS}if kind == 'chief':\n    more.append({KEPT})\nelse:\n    more.append({KEPT})\n"
                "model.fit(data, callbacks=more)\n"),
        (False, f"model.fit(data, callbacks=[{KEPT}])\n"),
        ("error", "if kind == 'chief':\n    model.load_weights(path)\n" + FIT),
        ("error", "point = tf.train.Checkpoint(model=model)\nif kind == 'chief' and path:\n    point.restore(path)\n"
                  + FIT),
        (False, "point = tf.train.Checkpoint(model=model)\nif path:\n    point.restore(path)\n" + FIT),
        (False, "if kind == 'chief':\n    model.load_weights(path)\nelse:\n    model.load_weights(other)\n" + FIT),
        (False, FIT + "if kind == 'chief':\n    model.load_weights(path)\n"),
    )],
    ("TW168", "error", MULTI + BUILT + "if kind == 'chief':\n    model.save(path)\n", None),
    ("TW168", False, MULTI + BUILT + "if kind == 'chief':\n    model.save(path)\n", ONE),
    ("TW168", False, MIRRORED + BUILT + "if kind == 'chief':\n    model.save(path)\n", TWO),
    # With parameter servers, the chief alone runs the program.
    ("TW168", False, HEAD + "strategy = tf.distribute.ParameterServerStrategy(cluster)\n" + BUILT
     + "if kind == 'chief':\n    model.load_weights(path)\n    model.fit(data)\n    model.save(path)\n", SERVERS),
]  # fmt: skip
KEPT_PATH = "os.path.join(os.environ['SM_MODEL_DIR'], '1')"
SCRATCH = "tempfile.mkdtemp()"
# The chief saves what is kept; what the others save is thrown away.
WAYS_OF_ALL = (
    "if index == 0:\n    model.save({kept})\nelse:\n    model.save({scratch})\n",
    "if index == 0:\n    model.save({kept})\nif index != 0:\n    model.save({scratch})\n",
    "model.save({kept}) if index == 0 else model.save({scratch})\n",
    "def export():\n    if index == 0:\n        model.save({kept})\n        return\n"
    "    model.save({scratch})\nexport()\n",
    "def export():\n    if index > 0:\n        return model.save({scratch})\n    model.save({kept})\nexport()\n",
    "def export():\n    if index > 0:\n        return False\n    model.save({kept})\n    return True\n"
    "if not export():\n    model.save({scratch})\n",
    "def put(path):\n    model.save(path)\nif index == 0:\n    put({kept})\nelse:\n    put({scratch})\n",
    "for epoch in range(9):\n    model.fit(data)\n    if index == 0:\n        model.save({kept})\n        continue\n"
    "    model.save({scratch})\n",
)
WAYS_OF_ONE = (
    "if index == 0:\n    model.save({kept})\nelse:\n    print({scratch})\n",
    "if index == 0:\n    model.save({kept})\nelse:\n    picture.save({scratch})\n",
    "def export():\n    if index > 0:\n        return\n    model.save({kept})\nexport()\n",
    # In every epoch the chief alone, and the others once.
    "for epoch in range(9):\n    model.fit(data)\n    if index == 0:\n        model.save({kept})\n"
    "if index != 0:\n    model.save({scratch})\n",
    # Either way the chief alone.
    "if found:\n    if index == 0:\n        model.save({kept})\n"
    "else:\n    if index == 0:\n        model.save({kept})\n",
)
EVERY_WORKER: list[Case] = [
    *[(code, code == "TW168" and one, MULTI + BUILT + "import json, os, tempfile\n" + INDEX
       + way.format(kept=KEPT_PATH, scratch=SCRATCH), MWMS)
      for one, ways in ((False, WAYS_OF_ALL), (True, WAYS_OF_ONE)) for way in ways for code in ("TW168", "TW142")],
    # Not where every worker saves to the temporary folder alone.
    ("TW142", True, MULTI + BUILT + FIT + "model.save('/tmp/model')\n", MWMS),
]  # fmt: skip
MADE = "model = tf.keras.Sequential([tf.keras.layers.Dense(1)])\n"
COMPILED = "model.compile(optimizer='adam', loss='mse')\n"
ADAM = "opt = tf.keras.optimizers.Adam()\n"
WITH_IT = COMPILED.replace("'adam'", "opt")
INSIDE = "with strategy.scope():\n    "
SCOPES: list[Case] = [
    ("TW189", False, MIRRORED + BUILT, ONE),
    ("TW189", False, MULTI + BUILT, MWMS),
    ("TW189", False, HEAD + MADE + COMPILED, ONE),
    ("TW189", 4, MULTI + MADE + COMPILED, MWMS),
    *[("TW189", reported, MIRRORED + script, ONE) for reported, script in (
        (4, MADE + COMPILED),
        (3, MADE + INSIDE + COMPILED),
        (False, INSIDE + MADE + COMPILED),
        (4, MADE + "model.compile('adam', 'mse')\n"),
        (4, MADE + "model.compile(loss='mse')\n"),
        (4, MADE + "model.compile('adam')\n"),
        (False, MADE + "model.compile()\n"),
        (False, "import work\nwork.compile(optimizer='adam')\n"),
        (False, "compile(optimizer='adam')\n"),
        (False, f"def later():\n    {COMPILED}"),
        (4, "from nets import makeModel\n" "model = makeModel()\n" + INSIDE + COMPILED),
        (False, "from nets import resnet\nmodel = resnet()\n" + INSIDE + COMPILED),
        # A model of which nothing is known may have been made inside.
        (False, "with strategy.scope():\n    prepare()\n" + COMPILED.replace("model", "it")),
        (5, INSIDE + "prepare()\n" + COMPILED),
        (3, COMPILED),
        (3, COMPILED.replace("model", "it")),
        # The optimizer is made inside.
        (False, INSIDE + ADAM + MADE + WITH_IT),
        (7, ADAM + INSIDE + "prepare()\n" + MADE + WITH_IT),
        # Compiled in a function that is also called inside, or on the other side of a condition.
        (False, f"def build():\n    {MADE}    {COMPILED}build()\n{INSIDE}build()\n"),
        (True, f"def build():\n    {MADE}    {COMPILED}build()\n"),
        (False, f"if several:\n    with strategy.scope():\n        {MADE}        {COMPILED}"
         f"else:\n    {MADE}    {COMPILED}"),
        (True, f"if several:\n    with strategy.scope():\n        {MADE}else:\n    print(1)\n{MADE}{COMPILED}"),
        (False, f"with strategies[0].scope():\n    {MADE}    {COMPILED}"),
    )],
    ("TW189", False, HEAD + "import work\nstrategy = work.MirroredStrategy()\n" + MADE + COMPILED, ONE),
]  # fmt: skip

FITTED = """
import numpy as np
import tensorflow as tf
def fitted(rows):
    layer = tf.keras.layers.Normalization(axis=-1)
    layer.adapt(rows)
    return layer.mean.numpy()
class Words:
    def __init__(self):
        self.layer = tf.keras.layers.TextVectorization(max_tokens=100)
    def read(self, lines):
        self.layer.adapt(lines)
def decoded(line):
    return tf.io.parse_tensor(line, tf.float32)
rows = np.load("rows.npy")
{before}
strategy = tf.distribute.MultiWorkerMirroredStrategy()
{after}
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
model.fit(rows)
"""
FIRST: list[Case] = [
    *[("TW148", reported, FITTED.format(before=before, after=""), MWMS) for reported, before in (
        (6, "mean = fitted(rows)"), (12, "words = Words()\nwords.read(rows)"),
        (16, "data = tf.keras.utils.image_dataset_from_directory('images')"),
        (16, "print(len(tf.config.list_logical_devices('GPU')))"),
        (16, "data = tf.data.Dataset.from_generator(rows_of, output_signature=form)"),
        (False, "print(len(tf.config.list_physical_devices('GPU')))"),
        (False, "words = Words()"), (False, "(x, y), rest = tf.keras.datasets.mnist.load_data()"),
        (False, "mean = rows.mean(axis=0)\ntf.random.set_seed(1)"), (False, "scaler = Scaler()\nscaler.adapt(rows)"),
        (False, "if alone:\n    mean = fitted(rows)"),
    )],
    ("TW148", False, FITTED.format(before="", after="mean = fitted(rows)"), MWMS),
    ("TW148", False, FITTED.format(before="mean = fitted(rows)", after=""), MWMS | {"instance_count": 1}),
    ("TW148", False, but(FITTED, "MultiWorkerM", "M").format(before="mean = fitted(rows)", after=""), MWMS),
]  # fmt: skip
CASES: list[Case] = [*HOSTS, *CLUSTERS, *CHIEF, *EVERY_WORKER, *SCOPES, *FIRST]


@pytest.mark.parametrize("case", CASES)
def test_a_strategy(case: Case) -> None:
    """Check that a rule reports the script or not, with the severity or the line that the case names."""
    assert not unmet(case)
