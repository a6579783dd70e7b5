"""Trains a small GPT with JAX and optax on sums, such as `417+85=502`, on any number of processes.

    horovodrun -np 4 python examples/jax/gpt.py --steps 2000

The model reads an exercise character by character and writes the result. Exercises are made up
here: each process makes its own. At the end the model is asked for sums that it has not seen in
training. Numbered comments mark the lines for distributed training.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import horovod.jax as hvd

LETTERS = "0123456789+= "
#: Digits of a summand. A result has one more, and is written from its last digit on, as on paper.
DIGITS = 2
PROMPT = 2 * DIGITS + 2
LENGTH = PROMPT + DIGITS + 1
Parameters = dict[str, Any]


class Sizes(NamedTuple):
    width: int
    heads: int
    layers: int


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch-size", type=int, default=64, help="exercises per step and process")
    parser.add_argument("--lr", type=float, default=2e-3, help="learning rate of one process")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


# ---- exercises -----------------------------------------------------------------------------------


def exercises(pairs: np.ndarray) -> np.ndarray:
    """Returns the letters [n, LENGTH] of the sums of pairs [n, 2]."""
    texts = [
        f"{a:0{DIGITS}}+{b:0{DIGITS}}=" + f"{a + b:0{DIGITS + 1}}"[::-1] for a, b in pairs.tolist()
    ]
    return np.array([[LETTERS.index(letter) for letter in text] for text in texts], np.int32)


def all_pairs(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns pairs for training and, 10 % of all, for the test at the end."""
    numbers = np.arange(10**DIGITS)
    pairs = np.stack(np.meshgrid(numbers, numbers), -1).reshape(-1, 2)
    pairs = np.random.default_rng(seed).permutation(pairs)
    return pairs[len(pairs) // 10 :], pairs[: len(pairs) // 10]


# ---- the model -----------------------------------------------------------------------------------


def init_parameters(key: jax.Array, sizes: Sizes) -> Parameters:
    keys = iter(jax.random.split(key, 3 + 4 * sizes.layers))
    width = sizes.width

    def dense(rows: int, columns: int) -> jax.Array:
        return jax.random.normal(next(keys), (rows, columns)) * rows**-0.5

    def block() -> Parameters:
        return {
            "attention": dense(width, 3 * width),
            "projection": dense(width, width),
            "wide": dense(width, 4 * width),
            "narrow": dense(4 * width, width),
            "norms": jnp.ones((2, width)),
        }

    return {
        "letters": 0.02 * jax.random.normal(next(keys), (len(LETTERS), width)),
        "places": 0.02 * jax.random.normal(next(keys), (LENGTH, width)),
        "blocks": [block() for _ in range(sizes.layers)],
        "norm": jnp.ones(width),
        "head": dense(width, len(LETTERS)),
    }


def normalized(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def attention(x: jax.Array, block: Parameters, heads: int) -> jax.Array:
    """Each letter looks at itself and at those before it."""
    batch, length, width = x.shape
    split = (x @ block["attention"]).reshape(batch, length, 3, heads, width // heads)
    mixed = jax.nn.dot_product_attention(
        split[:, :, 0], split[:, :, 1], split[:, :, 2], is_causal=True
    )
    return mixed.reshape(batch, length, width) @ block["projection"]


def predict(params: Parameters, letters: jax.Array, heads: int) -> jax.Array:
    """Returns logits [n, length, letters] of the letter that follows each one."""
    x = params["letters"][letters] + params["places"][: letters.shape[1]]
    for block in params["blocks"]:
        x = x + attention(normalized(x, block["norms"][0]), block, heads)
        inner = normalized(x, block["norms"][1]) @ block["wide"]
        x = x + jax.nn.gelu(inner) @ block["narrow"]
    return normalized(x, params["norm"]) @ params["head"]


def loss_of(params: Parameters, letters: jax.Array, heads: int) -> jax.Array:
    """Of the result's letters only: what stands before cannot be known."""
    logits = predict(params, letters[:, :-1], heads)[:, PROMPT - 1 :]
    return optax.softmax_cross_entropy_with_integer_labels(logits, letters[:, PROMPT:]).mean()


def right_sums(params: Parameters, letters: np.ndarray, heads: int) -> float:
    """The part of the exercises whose result the model writes without an error, letter by letter.
    Each process asks for some."""
    own = jnp.asarray(letters[hvd.rank() :: hvd.size()])
    written = own[:, :PROMPT]
    for _ in range(LENGTH - PROMPT):
        following = predict(params, written, heads)[:, -1].argmax(-1)
        written = jnp.concatenate([written, following[:, None].astype(jnp.int32)], 1)
    right = hvd.allreduce((written == own).all(1).sum(), op=hvd.Sum)
    return float(right) / len(letters)


# ---- training ------------------------------------------------------------------------------------


def main() -> None:
    arguments = parse_arguments()
    hvd.init()  # 1
    sizes = Sizes(arguments.width, arguments.heads, arguments.layers)
    params = init_parameters(jax.random.key(arguments.seed + hvd.rank()), sizes)
    params = hvd.broadcast_parameters(params, root_rank=0)  # 2
    warm = max(1, arguments.steps // 10)
    rate = arguments.lr * hvd.size() ** 0.5  # 3
    schedule = optax.warmup_cosine_decay_schedule(0.0, rate, warm, max(arguments.steps, warm + 1))
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))
    optimizer = hvd.DistributedOptimizer(optimizer)  # 4
    state = optimizer.init(params)

    @jax.jit
    def step(params: Parameters, state: Any, letters: jax.Array) -> Any:
        loss, gradients = jax.value_and_grad(loss_of)(params, letters, sizes.heads)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    train_pairs, test_pairs = all_pairs(arguments.seed)
    own_pairs = train_pairs[hvd.rank() :: hvd.size()]  # 5
    generator = np.random.default_rng(arguments.seed + hvd.rank())
    begin = time.perf_counter()
    losses: list[jax.Array] = []
    for number in range(1, arguments.steps + 1):
        letters = exercises(generator.choice(own_pairs, arguments.batch_size))
        params, state, loss = step(params, state, letters)
        losses.append(loss)
        if number % max(1, arguments.steps // 5) == 0:
            mean = float(hvd.metric_average(jnp.mean(jnp.stack(losses))))
            losses.clear()
            if hvd.rank() == 0:
                print(f"step {number}: loss {mean:.4f}", flush=True)
    seconds = time.perf_counter() - begin
    right = right_sums(params, exercises(test_pairs), sizes.heads)
    if hvd.rank() == 0:
        letters_per_second = arguments.steps * arguments.batch_size * LENGTH * hvd.size() / seconds
        print(f"sums not seen in training: {right:.1%} right")
        print(f"letters per second: {letters_per_second:.0f}")
        print(f"Cumulative training time: {seconds:.2f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
