"""Times the training step of the preset `lenet` in PyTorch: the same network, loss and optimizer as bench_step's.

One table row a batch size: microseconds a step (median and quartiles over repeats) and images a second. On the CPU the
step runs eagerly; on a GPU eagerly and replayed from one CUDA graph. Several ranks are processes with a GPU each under
DistributedDataParallel, and the batch is that of a rank.

    python3 pytorch_step.py --device cpu --threads 1 --batch 64
    python3 pytorch_step.py --device cuda --batch 8,64,512,4096
    python3 pytorch_step.py --device cuda --ranks 2 --batch 64
"""

import argparse
import os
import statistics
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


class Step:
    """One step on a batch gathered by index from images that lie on the device as bytes."""

    def __init__(self, device, batch, ranks, images=60000):
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randint(0, 256, (images, 1, 28, 28), generator=generator, dtype=torch.uint8).to(device)
        self.labels = torch.randint(0, 10, (images,), generator=generator).to(device)
        self.index = torch.randint(0, images, (batch,), generator=generator).to(device)
        self.net = lenet().to(device)
        if ranks > 1:
            stream = torch.cuda.Stream()  # as the capture of a step needs it
            with torch.cuda.stream(stream):
                self.net = nn.parallel.DistributedDataParallel(self.net, device_ids=[device])
            torch.cuda.current_stream().wait_stream(stream)
        self.loss = nn.CrossEntropyLoss()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9, nesterov=True)

    def run(self):
        x = self.images[self.index].float().div_(255)
        self.optimizer.zero_grad(set_to_none=False)
        loss = self.loss(self.net(x), self.labels[self.index])
        loss.backward()
        self.optimizer.step()
        return loss


def replayed(step):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(11):
            step.run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run()

    def run():
        graph.replay()
    run.step = step  # its tensors must live as long as the graph that reads them
    run.graph = graph
    return run


def microseconds(run, steps, repeats, synchronize, barrier):
    for _ in range(max(10, steps // 10)):
        run()
    synchronize()
    times = []
    for _ in range(repeats):
        barrier()
        start = time.perf_counter()
        for _ in range(steps):
            run()
        synchronize()
        times.append((time.perf_counter() - start) / steps * 1e6)
    return times


def measure(rank, args, store):
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    device, synchronize, barrier = "cpu", (lambda: None), (lambda: None)
    if args.device == "cuda":
        device, synchronize = rank, torch.cuda.synchronize
        torch.cuda.set_device(rank)
    if args.ranks > 1:
        os.environ["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "0"  # whose watchdog breaks a capture
        torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=args.ranks,
                                             device_id=torch.device("cuda", rank))
        barrier = torch.distributed.barrier
    for batch in map(int, args.batch.split(",")):
        for mode in ("eager", "graph") if args.device == "cuda" else ("eager",):
            step = Step(device, batch, args.ranks)
            run = step.run if mode == "eager" else replayed(step)
            times = microseconds(run, args.steps, args.repeat, synchronize, barrier)
            low, median, high = statistics.quantiles(times, n=4)
            if rank == 0:
                print(f"{mode:8} {batch:6} {median:10.1f} {low:11.1f} {high:11.1f} "
                      f"{args.ranks * batch / median * 1e6:12,.0f}", flush=True)
            if mode == "graph":
                run.graph.reset()  # before its communicator goes
    if args.ranks > 1:
        torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="threads of the CPU")
    parser.add_argument("--ranks", type=int, default=1, help="GPUs")
    parser.add_argument("--batch", default="64", help="batch sizes, separated by commas")
    parser.add_argument("--steps", type=int, default=200, help="steps a repeat")
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args()
    if args.ranks > 1 and args.device != "cuda":
        parser.error("--ranks needs --device cuda")
    print(f"PyTorch {torch.__version__}, {args.device}"
          + (f", {args.threads} threads" if args.device == "cpu" else
             f", {args.ranks} x {torch.cuda.get_device_name()}"))
    print(f"{'mode':8} {'batch':>6} {'us/step':>10} {'quartiles':>23} {'images/s':>12}", flush=True)
    if args.ranks == 1:
        measure(0, args, None)
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(measure, (args, os.path.join(folder, "store")), nprocs=args.ranks)


if __name__ == "__main__":
    main()
