"""Scripts where the contents of a list, the length of the data, or the order of two calls decide."""

from __future__ import annotations

from tests.support.followed_scripts import HOROVOD

LISTED = (
    HOROVOD
    + """
place = {{"size": hvd.size(), "first": hvd.rank() == 0}}
def calls():
    all_of_them = [hvd.callbacks.MetricAverageCallback(){every}]
    first = [tf.keras.callbacks.TensorBoard(){one}]
    return all_of_them + first if place["first"] else all_of_them
steps = 1000 // 64{share}
model.fit(data, steps_per_epoch=steps, callbacks=calls(), validation_data={held})
"""
)
PARTS_OF_LIST = {"every": "", "one": "", "share": ' // place["size"]', "held": "test"}
BROADCAST = ", hvd.callbacks.BroadcastGlobalVariablesCallback(0)"
ENDING = ", tf.keras.callbacks.EarlyStopping()"
WRITTEN = ", tf.keras.callbacks.ModelCheckpoint('/opt/ml/checkpoints/a.h5')"
JUDGED = """
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", loss="mse")
def rows(train):
    ds = tf.data.Dataset.range(9)
    return (ds.repeat() if train else ds).batch(2)
model.fit(rows(True), steps_per_epoch=5)
model.evaluate(rows({}){})
"""
SHARDED = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
{}
args = TrainingArguments("/opt/ml/model", deepspeed={{"zero_optimization": {{"stage": {}}}}})
{}
Trainer(model=model, args=args).train()
"""
LOADED = 'model = AutoModelForCausalLM.from_pretrained("some/model")'
COLLATED = """
from transformers import AutoTokenizer, DataCollatorForLanguageModeling
BASE = "EleutherAI/gpt-neo-1.3B"
tokenizer = AutoTokenizer.from_pretrained(BASE)
{}
DataCollatorForLanguageModeling(tokenizer, mlm=False)
"""
