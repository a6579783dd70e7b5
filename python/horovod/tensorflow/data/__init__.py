"""Preparation of batches in separate processes, by tf.data's service."""
