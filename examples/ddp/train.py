"""torchrun: DistributedDataParallel, by gloo on CPUs and by NCCL on GPUs.

    ./invoke rehearse --image IMAGE --entry-point train.py --source-dir examples/ddp \
        --hosts 2 --processes-per-host 2 --distribution torch_distributed
"""

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if gpu else "gloo")
    local_rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)

    torch.manual_seed(0)  # the same rows and the same first weights on every rank
    x = torch.rand(512, 1) * 2 - 1
    rows = TensorDataset(x, 2 * x + 1)
    sampler = DistributedSampler(rows)
    loader = DataLoader(rows, batch_size=args.batch_size, sampler=sampler)
    model = DistributedDataParallel(torch.nn.Linear(1, 1).to(device), device_ids=[local_rank] if gpu else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.4f} over {dist.get_world_size()} ranks", flush=True)

    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), Path(os.environ["SM_MODEL_DIR"], "model.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
