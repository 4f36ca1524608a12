#!/usr/bin/env python3
"""Writes char_gpt/*.npy: ten training steps of a small char_gpt, computed by PyTorch in float64.

Two blocks of width 32 with 4 heads, 11 symbols, a context of 16, batches of 4 windows. The optimizer is SGD with
momentum: Adam's first steps divide by gradients near 0, where float32 cannot follow. Linear weights are stored as
halfstep has them, (in, out), and so are their gradients; everything else as in PyTorch. All gradients of the first and of
the last step are stored one after the other, in the order of NAMES.
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

from golden import STEPS, check_follows, save, sgd

SYMBOLS, CONTEXT, WIDTH, HEADS, BLOCKS, BATCH = 11, 16, 32, 4, 2, 4


def shapes():
    """Names and shapes as halfstep has them, in its order."""
    all = {"transformer.wte.weight": (SYMBOLS, WIDTH), "transformer.wpe.weight": (CONTEXT, WIDTH)}
    for b in range(BLOCKS):
        head = f"transformer.h.{b}."
        all[head + "ln_1.weight"] = (WIDTH,)
        all[head + "attn.c_attn.weight"] = (WIDTH, 3 * WIDTH)
        all[head + "attn.c_proj.weight"] = (WIDTH, WIDTH)
        all[head + "ln_2.weight"] = (WIDTH,)
        all[head + "mlp.c_fc.weight"] = (WIDTH, 4 * WIDTH)
        all[head + "mlp.c_proj.weight"] = (4 * WIDTH, WIDTH)
    all["transformer.ln_f.weight"] = (WIDTH,)
    return all


NAMES = list(shapes())


def initial_weights():
    """Larger than a training starts with, so that softmax and layer norm are far from linear."""
    random = np.random.RandomState(7)
    draw = lambda shape: random.uniform(-1, 1, shape)
    return {name: (1 + 0.3 * draw(shape) if len(shape) == 1 else draw(shape) * 1.5 / math.sqrt(shape[0])).astype(np.float32)
            for name, shape in shapes().items()}


def windows():
    """A text in which the next symbol depends on the two before, with some noise."""
    random = np.random.RandomState(3)
    text = [1, 2]
    while len(text) < STEPS * BATCH * CONTEXT + 1:
        text.append((3 * text[-1] + text[-2] + random.randint(0, 2)) % SYMBOLS)
    return np.stack([np.array(text[i * CONTEXT:(i + 1) * CONTEXT + 1], np.uint8) for i in range(STEPS * BATCH)])


def forward(w, tokens):
    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"]
    norm = lambda x, name: F.layer_norm(x, (WIDTH,), w[name])
    for b in range(BLOCKS):
        head = f"transformer.h.{b}."
        q, k, v = (norm(x, head + "ln_1.weight") @ w[head + "attn.c_attn.weight"]).split(WIDTH, dim=2)
        q, k, v = (a.view(-1, CONTEXT, HEADS, WIDTH // HEADS).transpose(1, 2) for a in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + y @ w[head + "attn.c_proj.weight"]
        y = F.gelu(norm(x, head + "ln_2.weight") @ w[head + "mlp.c_fc.weight"], approximate="tanh")
        x = x + y @ w[head + "mlp.c_proj.weight"]
    return norm(x, "transformer.ln_f.weight") @ w["transformer.wte.weight"].T


def train(start, text, dtype):
    w = {name: torch.tensor(value).to(dtype).requires_grad_() for name, value in start.items()}

    def loss_of(step):
        batch = torch.tensor(text[step * BATCH:(step + 1) * BATCH]).long()
        return F.cross_entropy(forward(w, batch[:, :-1]).reshape(-1, SYMBOLS), batch[:, 1:].reshape(-1))

    return sgd(w, 0.1, loss_of, lambda name, gradient: gradient.numpy().copy())


def main():
    start, text = initial_weights(), windows()
    losses, gradients = exact = train(start, text, torch.float64)
    check_follows(train(start, text, torch.float32), exact)
    flat = lambda tensors: np.concatenate([tensors[name].reshape(-1) for name in NAMES]).astype(np.float32)
    save("char_gpt", {"windows": text, "initial": flat(start), "losses": np.array(losses), "gradients1": flat(gradients[0]),
                      "gradients10": flat(gradients[-1])})


if __name__ == "__main__":
    main()
