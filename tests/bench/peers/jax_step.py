"""Times the training step of the preset `lenet` in JAX: the same network, loss and optimizer as bench_step's.

Many steps run in one compiled scan over indices, with the images on the device as bytes. One table row a batch size:
microseconds a step (median and quartiles over repeats) and images a second.

    python3 jax_step.py --batch 8,64,512,4096
"""

import argparse
import functools
import statistics
import time

import jax
import jax.numpy as jnp
import numpy

LEARNING_RATE, MOMENTUM = 0.01, 0.9


def initial(key):
    def uniform(key, shape, fan_in):
        bound = fan_in ** -0.5
        return jax.random.uniform(key, shape, minval=-bound, maxval=bound)

    shapes = {"conv1": ((5, 5, 1, 6), 25), "conv2": ((5, 5, 6, 16), 150), "fc1": ((256, 120), 256),
              "fc2": ((120, 84), 120), "fc3": ((84, 10), 84)}
    keys = iter(jax.random.split(key, 2 * len(shapes)))
    return {name: (uniform(next(keys), shape, fan_in), uniform(next(keys), shape[-1:], fan_in))
            for name, (shape, fan_in) in shapes.items()}


def logits(parameters, x):
    for name in ("conv1", "conv2"):
        weight, bias = parameters[name]
        x = jax.lax.conv_general_dilated(x, weight, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        x = jax.nn.relu(x + bias)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    x = x.reshape(x.shape[0], -1)
    for name in ("fc1", "fc2"):
        weight, bias = parameters[name]
        x = jax.nn.relu(x @ weight + bias)
    weight, bias = parameters["fc3"]
    return x @ weight + bias


def loss(parameters, x, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(parameters, x)), labels[:, None], axis=1).mean()


@functools.partial(jax.jit, donate_argnums=0)
def train(state, images, labels, indices):
    """Steps on the batches that the rows of `indices` name; gives the new state and each step's loss."""

    def step(state, index):
        parameters, velocity = state
        x = images[index].astype(jnp.float32)[..., None] / 255
        value, gradient = jax.value_and_grad(loss)(parameters, x, labels[index])
        velocity = jax.tree.map(lambda v, g: MOMENTUM * v + g, velocity, gradient)
        parameters = jax.tree.map(lambda p, v, g: p - LEARNING_RATE * (g + MOMENTUM * v), parameters, velocity,
                                  gradient)
        return (parameters, velocity), value

    return jax.lax.scan(step, state, indices)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", default="64", help="batch sizes, separated by commas")
    parser.add_argument("--steps", type=int, default=500, help="steps of a scan, which is a repeat")
    parser.add_argument("--repeat", type=int, default=7)
    args = parser.parse_args()
    jax.config.update("jax_default_matmul_precision", "float32")
    random = numpy.random.default_rng(1)
    images = jnp.asarray(random.integers(0, 256, (60000, 28, 28), dtype=numpy.uint8))
    labels = jnp.asarray(random.integers(0, 10, 60000))
    print(f"JAX {jax.__version__}, {jax.devices()[0].device_kind}")
    print(f"{'mode':8} {'batch':>6} {'us/step':>10} {'quartiles':>23} {'images/s':>12}")
    for batch in map(int, args.batch.split(",")):
        indices = jnp.asarray(random.integers(0, 60000, (args.steps, batch)))
        parameters = initial(jax.random.key(1))
        state = parameters, jax.tree.map(jnp.zeros_like, parameters)
        times = []
        for repeat in range(args.repeat + 1):  # the first one compiles
            start = time.perf_counter()
            state, losses = train(state, images, labels, indices)
            losses.block_until_ready()
            if repeat > 0:
                times.append((time.perf_counter() - start) / args.steps * 1e6)
        low, median, high = statistics.quantiles(times, n=4)
        print(f"{'scan':8} {batch:6} {median:10.1f} {low:11.1f} {high:11.1f} {batch / median * 1e6:12,.0f}")


if __name__ == "__main__":
    main()
