"""Same seed, same number of threads: the same weights, in another process too."""

import os
import subprocess
import sys

SCRIPT = """
import hashlib, sys, torch
torch.set_num_threads(int(sys.argv[1]))
from acc_rl import ACC
model = ACC("MlpPolicy", "Pendulum-v1", seed=7, n_critics=2, learning_starts=100, buffer_size=2000, device="cpu",
            batch_size=32, policy_kwargs={"net_arch": [32, 32]}, bias={"start_step": 200, "update_interval": 200})
model.learn(420)
digest = hashlib.sha256()
for name, value in sorted(model.policy.state_dict().items()):
    digest.update(value.numpy().tobytes())
print(digest.hexdigest(), model.beta)
"""


def test_two_processes_reach_identical_weights():
    command = [sys.executable, "-c", SCRIPT, "2"]
    # waiting threads sleep: other tests want the cores
    env = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) for _ in range(2)]
    one, other = (process.communicate()[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert one == other
    assert float(one.split()[1]) != 2.5
