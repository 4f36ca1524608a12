#!/usr/bin/env python3
"""Trains halfstep's models in JAX, as a peer to compare training time with. See README.md.

JAX is given its fastest fair way: all data in memory on the device and normalised once ahead of time, shuffled by
index, the whole step with Adam compiled by XLA, no reading of the loss during training. Timed: shuffling, gathering
batches, forward, backward, optimizer. Not timed: reading files, compiling, evaluation. All steps of an epoch as one
program, by lax.scan, would save calls, but on a CPU a convolution in a loop is several times as slow.
Exit codes are halfstep's: 2 usage, 3 bad data, 4 a file is missing, 6 the loss is not finite, 7 not available here.
"""
import functools
import os
import sys
import time

sys.dont_write_bytecode = True
import peer

INSTALL = 'python3 -m pip install jax, and for an NVIDIA GPU "jax[cuda13]"'
try:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
except (ImportError, OSError) as error:
    peer.fail_import("JAX", error, INSTALL)

# The same as in models/*.cpp: pooling before ReLU, which gives the same numbers for less work.
MODELS = {
    "mnist_cnn": [("conv", 1, 32), "pool", "relu", ("conv", 32, 64), "pool", "relu", "flatten", ("dropout", 0.5),
                  ("linear", 1600, 10)],
    "mnist_cnn_large": [("conv", 1, 32), "relu", ("conv", 32, 64), "pool", "relu", "flatten", ("dropout", 0.25),
                        ("linear", 9216, 128), "relu", ("dropout", 0.5), ("linear", 128, 10)],
    "mlp": ["flatten", ("linear", 784, 500), "relu", ("linear", 500, 10)],
}
# The type of products and convolutions, and the precision of f32 products: by default, a GPU uses tf32.
PRECISIONS = {"f32": (jnp.float32, "highest"), "tf32": (jnp.float32, "default"), "bf16": (jnp.bfloat16, "default")}
VERSION = f"JAX {jax.__version__}"


def fresh_weights(model, key):
    """A dictionary of weights and biases for each layer that has them, uniform in +-1/sqrt(fan_in)."""
    weights = []
    for kind, inputs, outputs in (layer for layer in MODELS[model] if layer[0] in ("conv", "linear")):
        shape = (3, 3, inputs, outputs) if kind == "conv" else (inputs, outputs)
        bound = (np.prod(shape) / outputs) ** -0.5
        key, for_w, for_b = jax.random.split(key, 3)
        weights.append({"w": jax.random.uniform(for_w, shape, minval=-bound, maxval=bound),
                        "b": jax.random.uniform(for_b, (outputs,), minval=-bound, maxval=bound)})
    return weights


def forward(args, weights, x, key=None):
    """Logits of images (N, 28, 28, 1); without a key there is no dropout."""
    dtype, precision = PRECISIONS[args.precision]
    left = iter(weights)
    for layer in MODELS[args.model]:
        if layer == "relu":
            x = jax.nn.relu(x)
        elif layer == "pool":  # of 2x2; not reduce_window, whose gradient is slow on the CPU
            x = x[:, :x.shape[1] // 2 * 2, :x.shape[2] // 2 * 2]
            x = jnp.maximum(jnp.maximum(x[:, ::2, ::2], x[:, ::2, 1::2]),
                            jnp.maximum(x[:, 1::2, ::2], x[:, 1::2, 1::2]))
        elif layer == "flatten":
            x = x.reshape(len(x), -1)
        elif layer[0] == "dropout":
            if key is None: continue
            key, mine = jax.random.split(key)
            x = jnp.where(jax.random.bernoulli(mine, 1 - layer[1], x.shape), x / (1 - layer[1]), 0)
        else:
            layer_weights = next(left)
            w, b = layer_weights["w"].astype(dtype), layer_weights["b"].astype(dtype)
            if layer[0] == "conv":
                x = lax.conv_general_dilated(x.astype(dtype), w, (1, 1), "VALID", precision=precision,
                                             dimension_numbers=("NHWC", "HWIO", "NHWC")) + b
            else:
                x = jnp.matmul(x.astype(dtype), w, precision=precision) + b
    return x.astype(jnp.float32)


def loss_of(args, weights, images, labels, key):
    log_probabilities = jax.nn.log_softmax(forward(args, weights, images, key))
    return -jnp.take_along_axis(log_probabilities, labels[:, None], 1).mean()


def make_step(args):
    """state, batch -> state, with Adam as Kingma and Ba have it."""

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, images, labels, index, key):
        weights, m, v, t, loss_sum = state
        take = lambda array: array.at[index].get(mode="promise_in_bounds")
        loss, gradients = jax.value_and_grad(functools.partial(loss_of, args))(
            weights, take(images), take(labels), jax.random.fold_in(key, t))
        t += 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradients)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, gradients)
        rate, correction = args.lr / (1 - 0.9 ** t), 1 - 0.999 ** t
        weights = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v / correction) + 1e-8), weights, m, v)
        return weights, m, v, t, loss_sum + loss * len(index)

    return step


def fresh_state(args, seed):
    weights = fresh_weights(args.model, jax.random.key(seed))
    zeros = lambda: jax.tree.map(jnp.zeros_like, weights)
    return weights, zeros(), zeros(), jnp.zeros((), jnp.int32), jnp.zeros(())


def load(args, stem, count, flag):
    """(images f32 (N, 28, 28, 1), normalised; labels (N)), the first `count` of the file, on the device."""
    images, labels = peer.read_set(args, stem, count, flag)
    images = np.frombuffer(images, np.uint8).reshape(-1, 28, 28, 1).astype(np.float32)
    return jnp.asarray((images / 255 - 0.1307) / 0.3081), jnp.asarray(np.frombuffer(labels, np.uint8).astype(np.int32))


def measure(args, training, test):
    step = make_step(args)
    correct = jax.jit(lambda weights, x, y: (forward(args, weights, x).argmax(1) == y).sum())

    start = time.perf_counter()
    state = fresh_state(args, 0)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state[0]))
    for size in {min(args.batch, args.train), args.train % args.batch} - {0}:  # full batch, remainder of an epoch
        for _ in range(3): state = step(state, *training, np.arange(size, dtype=np.int32), jax.random.key(0))
    jax.block_until_ready(state)
    warmup_seconds = time.perf_counter() - start

    runs = []
    for seed in range(args.seed, args.seed + args.repeat):
        state, key, shuffle = fresh_state(args, seed), jax.random.key(seed + 1), np.random.default_rng(seed)
        jax.block_until_ready(state)
        start = time.perf_counter()
        for _ in range(args.epochs):
            state = *state[:4], jnp.zeros(())
            order = shuffle.permutation(args.train).astype(np.int32)
            for first in range(0, args.train, args.batch):
                state = step(state, *training, order[first:first + args.batch], key)
        jax.block_until_ready(state)
        seconds = time.perf_counter() - start
        loss = float(state[4]) / args.train
        peer.check_loss(seed, loss)
        right = sum(int(correct(state[0], test[0][i:i + 1000], test[1][i:i + 1000])) for i in range(0, args.test, 1000))
        runs.append({"seconds": seconds, "final_loss": loss, "test_accuracy": right / args.test})
    return {"parameters": parameters, "optimizer": "Adam", "warmup_seconds": warmup_seconds, **peer.figures(args, runs)}


def main():
    args = peer.parse(peer.parser(__doc__, VERSION, MODELS, PRECISIONS))
    args.name = f"jax {args.model} {args.precision}"
    if args.device == "cpu" and args.precision == "tf32":
        peer.fail(7, "--precision tf32 needs --device cuda")
    # XLA uses one thread per core that it may run on.
    if args.threads < peer.cores(): os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.threads])
    jax.config.update("jax_platforms", args.device)
    jax.config.update("jax_default_prng_impl", "rbg")  # dropout with XLA's own generator: the default one is slower
    try:
        device = jax.devices()[0]
    except (RuntimeError, AssertionError):
        peer.fail(7, f"--device {args.device}: {VERSION} finds none; for one: {INSTALL}")
    engine = {"jax": jax.__version__, "device": "cpu" if args.device == "cpu" else device.device_kind}
    environment = peer.environment(args, **engine)
    training, test = load(args, "train", args.train, "--train"), load(args, "t10k", args.test, "--test")
    peer.record(args, VERSION, environment, [args], (), lambda variant: measure(variant, training, test))


if __name__ == "__main__":
    main()
