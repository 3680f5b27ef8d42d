"""How a server is set up: who may ask, and how much."""

from __future__ import annotations

from dataclasses import dataclass, field

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Limits:
    file_bytes: int = 32 << 20  # of one picture
    request_bytes: int = 128 << 20
    waiting_bytes: int = 512 << 20  # of all uploads that are being received or decoded
    json_bytes: int = 64 << 10  # of a body that is no upload
    pixels: int = 64_000_000  # of one picture; a phone takes 50 million
    images: int = 64  # of one request
    upload_seconds: float = 60.0  # until a body has arrived
    answer_seconds: float = 60.0  # until a picture is answered
    changes: int = 32  # that wait for their turn

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"the limit {name} must be positive, got {value}")


@dataclass(frozen=True)
class Settings:
    token: str | None = None  # who has it may ask; without one everybody who reaches the port may
    queue: int = 256  # pictures that are decoded or wait; beyond that the answer is 429
    batch: int = 32  # pictures that go through the backbone at once
    workers: int = 2  # threads that decode
    limits: Limits = field(default_factory=Limits)

    @property
    def images(self) -> int:
        """Pictures of one request: more than the queue holds would never be accepted."""
        return min(self.limits.images, self.queue)
