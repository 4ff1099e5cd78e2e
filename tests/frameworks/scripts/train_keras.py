"""A training as the guides of Keras are written, with its callbacks for a backup and a table."""

import os
import sys
import time

import keras
import numpy as np


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)


keras.utils.set_random_seed(1)
values = np.random.default_rng(1).normal(size=(400, 8)).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(
    values,
    values.sum(1, keepdims=True),
    epochs=24,
    batch_size=8,
    verbose=2,
    callbacks=[
        Slow(),
        keras.callbacks.CSVLogger(os.path.join(sys.argv[1], "metrics.csv"), append=True),
        keras.callbacks.BackupAndRestore(os.path.join(sys.argv[2], "backup"), delete_checkpoint=False),
    ],
)
model.save(os.path.join(sys.argv[1], "model.keras"))
