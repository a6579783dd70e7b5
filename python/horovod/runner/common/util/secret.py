"""Keys, and message digests that only holders of the key can make."""

from __future__ import annotations

import hashlib
import hmac
import secrets

#: The variable in which scripts pass a key to processes that they start.
HOROVOD_SECRET_KEY = "_HOROVOD_SECRET_KEY"
DIGEST_LENGTH = 32  #: bytes


def make_secret_key() -> bytes:
    """Returns a new key, 32 random bytes."""
    return secrets.token_bytes(32)


def compute_digest(key: bytes, message: bytes) -> bytes:
    """Returns the HMAC-SHA-256 of `message`, 32 bytes."""
    return hmac.digest(key, message, hashlib.sha256)


def check_digest(key: bytes, message: bytes, digest: bytes) -> bool:
    """Returns whether `digest` is that of `message`, in constant time."""
    return hmac.compare_digest(compute_digest(key, message), digest)
