"""The framework: it computes, it learns, and it knows which CUDA it was built for."""

import json

import pytest

QUIET = "import os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'; import tensorflow as tf\n"


def test_version_and_cuda(python, plan):
    script = "import json; print(json.dumps([tf.__version__, tf.sysconfig.get_build_info().get('cuda_version')]))"
    version, cuda = json.loads(python(QUIET + script))
    wanted = next(c["version"] for c in plan["components"] if c["name"] == "tensorflow")
    assert version == wanted.split("+")[0]
    if plan["cuda"] != "cpu":
        assert (cuda or "").split(".")[0] == plan["cuda"].split(".")[0]


def test_learns(python):
    # A linear fit without Keras, whose releases differ more than TensorFlow's.
    script = """
tf.random.set_seed(0)
x = tf.random.normal([256, 4])
y = tf.linalg.matvec(x, tf.constant([1.0, -2.0, 3.0, 0.5]))
weights = tf.Variable(tf.zeros([4]))
for _ in range(100):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - y) ** 2)
    weights.assign_sub(0.1 * tape.gradient(loss, weights))
print(float(loss) < 1e-3)
"""
    assert python(QUIET + script) == "True"


def test_bytecode_is_in_the_image(uncompiled):
    # Otherwise each process of a job compiles some 3,600 modules at its start.
    assert uncompiled(QUIET) == []


def test_keras_model_learns(python):
    script = """
import numpy
x = numpy.random.RandomState(0).normal(size=(256, 4)).astype("float32")
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile(optimizer=tf.keras.optimizers.SGD(0.1), loss="mse")
history = model.fit(x, x.sum(axis=1), epochs=5, batch_size=32, verbose=0).history["loss"]
print(history[-1] < 0.1 * history[0])
"""
    assert python(QUIET + script) == "True"


def test_graphs_are_compiled_and_saved(python):
    script = """
import tempfile
class Double(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
    def __call__(self, x):
        return 2 * x
folder = tempfile.mkdtemp()
tf.saved_model.save(Double(), folder)
print(tf.saved_model.load(folder)(tf.constant([1.0, 2.5])).numpy().tolist())
"""
    assert python(QUIET + script) == "[2.0, 5.0]"


@pytest.mark.usefixtures("requires_gpu")
def test_gpu_computes(python):
    script = "with tf.device('/GPU:0'):\n    a = tf.ones([64, 64])\nprint(float(tf.reduce_sum(a @ a)))"
    assert python(QUIET + script) == "262144.0"
