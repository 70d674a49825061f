"""Processes that play in environments of their own, and decide by what they saw there.

Sources: Gymnasium, core.py, Env.reset: without a seed, one is chosen from a source of entropy, once; PyTorch's
documentation of torch.distributed; Lightning-AI/pytorch-lightning #379.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.training_scripts import DDP, P4D, TORCHRUN, but, codes, findings

JOB: dict[str, Any] = {"distribution": TORCHRUN, "instance_type": P4D}
PLAYS = (
    DDP
    + """
import gymnasium as gym
import numpy as np
class Player:
    def __init__(self, seed):
        self.env = gym.make("CartPole-v1")
        self.obs, _ = self.env.reset(seed=seed)
        self.total, self.returns = 0.0, []
    @torch.no_grad()
    def play(self, policy, steps):
        seen = []
        for _ in range(steps):
            action = policy(torch.as_tensor(self.obs).cuda()).argmax().item()
            self.obs, reward, ended, cut, _ = self.env.step(action)
            seen.append(torch.as_tensor(self.obs))
            self.total += reward
            if ended or cut:
                self.returns.append(self.total)
                self.total = 0.0
                self.obs, _ = self.env.reset()
        return torch.stack(seen)
    def recent(self):
        return np.mean(self.returns[-10:])
policy = DDP(torch.nn.Linear(4, 2).cuda())
optimizer = torch.optim.Adam(policy.parameters())
player = Player(dist.get_rank())
for update in range(500):
    seen = player.play(policy.module, 64)
    optimizer.zero_grad()
    policy(seen.cuda()).sum().backward()
    optimizer.step()
    score = player.recent()
    if dist.get_rank() == 0:
        print(score)
    if score > 400:
        break
dist.barrier()
"""
)
SCORE = "    score = player.recent()\n"
TENSOR = "    found = torch.tensor(player.recent(), device='cuda')\n    {}\n    score = found.item()\n"


@pytest.mark.parametrize(
    ("wrong", "script"),
    [
        (True, PLAYS),
        (True, but(PLAYS, "Player(dist.get_rank())", "Player(1000 * dist.get_rank() + 7)")),
        (True, but(PLAYS, "import gymnasium as gym", "import gym")),
        (True, but(PLAYS, "reset(seed=seed)", "reset()")),
        (True, but(PLAYS, 'gym.make("CartPole-v1")', 'gym.wrappers.TimeLimit(gym.make("CartPole-v1"), 9)')),
        (
            True,
            but(
                PLAYS,
                "for update in range(500)",
                "while player.total < 400",
                "    if score > 400:\n        break\n",
                "",
            ),
        ),
        (False, but(PLAYS, "Player(dist.get_rank())", "Player(7)")),
        (False, but(PLAYS, SCORE, TENSOR.format("dist.all_reduce(found)"))),
        (False, but(PLAYS, SCORE, TENSOR.format("dist.broadcast(found, 0)"))),
        (
            False,
            but(PLAYS, SCORE, "    score = agreement.mean(player.recent())\n").replace(
                "import numpy", "import agreement\nimport numpy"
            ),
        ),
        (
            False,
            but(
                PLAYS,
                "    if score > 400:\n        break\n",
                "    if score > 400 and dist.get_rank() == 0:\n        print('good')\n",
            ),
        ),
        (
            False,
            but(
                PLAYS,
                "    if score > 400:\n        break\n",
                "    if len(player.returns) > 9:\n        dist.barrier()\n",
            ),
        ),
        (
            False,
            but(
                PLAYS,
                "    if score > 400:\n        break\n",
                "    if not player.returns:\n        continue\n    dist.barrier()\n",
            ),
        ),
        (False, but(PLAYS, "if score > 400:", "if update > 400:")),
    ],
)
def test_a_decision_by_what_a_process_saw(wrong, script):
    """The first process whose score is good enough leaves, and the others wait for its gradients."""
    assert ("TW401" in codes(script, JOB)) is wrong


def test_the_first_process_may_show_its_own_score():
    """An evaluation in an environment needs no data of the others."""
    assert not {each.code for each in findings(PLAYS, JOB)} & {"TW507", "TW419"}
