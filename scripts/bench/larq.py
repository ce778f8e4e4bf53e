"""Microseconds of one binary 3x3 convolution in larq-compute-engine: the difference between a chain of many and a chain of one.

Bits go in and bits come out of each link of the chain, as in a packed block of ours: the converter fuses convolution and sign.
"""

import statistics
import time

import larq as lq
import larq_compute_engine as lce
import numpy as np
import tensorflow as tf
from larq_compute_engine.tflite.python.interpreter import Interpreter

LINKS = 9
ROUNDS = 15


def chain(channels, side, links):
    x = inputs = tf.keras.Input((side, side, channels), batch_size=1)
    for _ in range(links):
        x = lq.layers.QuantConv2D(
            channels,
            3,
            padding="same",
            pad_values=1.0,
            input_quantizer="ste_sign",
            kernel_quantizer="ste_sign",
            use_bias=False,
        )(x)
    model = lce.convert_keras_model(tf.keras.Model(inputs, x))
    return Interpreter(model, num_threads=1)


def microseconds(interpreter, x):
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < 0.1:
        interpreter.predict(x)
        calls += 1
    return (time.perf_counter() - start) * 1e6 / calls


def main():
    print(f"larq-compute-engine, one thread, median of {ROUNDS} rounds")
    print("channels   side  microseconds")
    for channels in (64, 128, 256):
        for side in (8, 16, 32):
            x = np.random.default_rng(1).standard_normal((1, side, side, channels)).astype(np.float32)
            one, many = chain(channels, side, 1), chain(channels, side, 1 + LINKS)
            rounds = [(microseconds(many, x) - microseconds(one, x)) / LINKS for _ in range(ROUNDS)]
            print(f"{channels:8} {side:6} {statistics.median(rounds):13.1f}", flush=True)


if __name__ == "__main__":
    main()
