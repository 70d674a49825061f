"""DeepSpeed: imported without a GPU and without nvcc, it reads its configuration; with a GPU it trains with ZeRO."""

import pytest


def test_it_is_imported_without_a_compiler(python):
    # Versions that ask nvcc for its version on import end here.
    assert python("import deepspeed; print(deepspeed.__name__)").splitlines()[-1] == "deepspeed"


def test_a_configuration_is_read(python):
    script = """
from deepspeed.runtime.config import DeepSpeedConfig
read = DeepSpeedConfig({"train_batch_size": 8, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}})
print(read.zero_config.stage, read.train_micro_batch_size_per_gpu, read.bfloat16_config.enabled)
"""
    assert python(script).splitlines()[-1] == "3 8 True"


@pytest.mark.usefixtures("requires_gpu")
@pytest.mark.parametrize("stage", [1, 3])
def test_zero_learns(host, stage):
    script = f"""
import os, torch, deepspeed
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="29571")
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
settings = {{"train_micro_batch_size_per_gpu": 64, "zero_optimization": {{"stage": {stage}}},
    "zero_allow_untested_optimizer": True}}
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
x = torch.randn(64, 8, device="cuda")
losses = []
for _ in range(50):
    loss = ((engine(x) - x.sum(1, keepdim=True)) ** 2).mean()
    losses.append(float(loss))
    engine.backward(loss)
    engine.step()
print(losses[-1] < 0.1 * losses[0])
"""
    host.check_output("printf %%s %s > /tmp/smoke_deepspeed.py", script)
    done = host.run("cd /tmp && python3 smoke_deepspeed.py; c=$?; rm -f smoke_deepspeed.py; exit $c")
    assert done.rc == 0, done.stderr[-2000:]
    assert done.stdout.strip().splitlines()[-1] == "True"
