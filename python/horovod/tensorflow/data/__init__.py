"""Preparing batches in processes of their own, by tf.data's service."""
