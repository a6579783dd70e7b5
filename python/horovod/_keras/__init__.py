"""What `horovod.keras` and `horovod.tensorflow.keras` share. Each gives its module of Keras.

Keras 3 runs on TensorFlow, PyTorch or JAX; Keras 2 (`tf_keras`, or TensorFlow's own before 2.16) on
TensorFlow alone. Nothing here imports a framework unless that Keras runs on it.
"""
