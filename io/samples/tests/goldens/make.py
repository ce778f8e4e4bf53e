"""Makes the .npz files beside it with NumPy: python3 make.py

The names, types and shapes of mvmc-12.npz are those of DDNN's MVMC.npz (numpy.savez_compressed of X and y); the pictures are made up.
"""

from pathlib import Path

import numpy as np

HERE = Path(__file__).parent


def mvmc(samples=12):
    """View s, k is filled with the pixel 20 s + k, whose maximum DDNN would have made 1; here it stays for the test to find."""
    x = np.zeros((samples, 6, 3, 32, 32), dtype=np.float32)
    y = np.full((samples, 6), 3, dtype=np.int32)
    for sample in range(samples):
        for camera in range(6):
            if (sample + camera) % 3 != 0:
                x[sample, camera] = np.float32(20 * sample + camera) / np.float32(255)
                y[sample, camera] = sample % 3
    # The last but one is seen by nobody.
    x[samples - 2] = 0
    y[samples - 2] = 3
    np.savez_compressed(HERE / "mvmc-12.npz", X=x, y=y)


def types():
    kinds = {
        "bool": np.bool_, "i1": np.int8, "u1": np.uint8, "i2": np.int16, "i4": np.int32, "i8": np.int64, "f4": np.float32, "f8": np.float64,
    }
    arrays = {name: np.array([[0, 1, 1], [1, 0, 1]], dtype=kind) for name, kind in kinds.items()}
    arrays["negative"] = np.array([-3, 2], dtype=np.int16)
    arrays["scalar"] = np.array(7, dtype=np.int64)
    arrays["none"] = np.zeros((0, 4), dtype=np.float32)
    arrays["fortran"] = np.asfortranarray(np.zeros((2, 3), dtype=np.float32))
    arrays["big"] = np.zeros(2, dtype=">f4")
    arrays["fields"] = np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")])
    np.savez(HERE / "types.npz", **arrays)
    with open(HERE / "version-2.npy", "wb") as file:
        np.lib.format.write_array(file, np.arange(6, dtype=np.int32).reshape(2, 3), version=(2, 0))


mvmc()
types()
