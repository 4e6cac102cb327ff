"""Table of comparisons: one prompt, several arms."""

from datetime import datetime

from sqlalchemy import Boolean, String, false
from sqlalchemy.orm import Mapped, mapped_column

from models.db.base import Base


class Experiment(Base):
    """A comparison. Its arms are the runs with this `experiment_id`, ordered by `arm_index`, then `sample_index`."""

    __tablename__ = "experiments"

    id: Mapped[str] = mapped_column(String(36), primary_key=True)  # UUIDv7
    created_at: Mapped[datetime] = mapped_column(index=True)
    owner: Mapped[str | None] = mapped_column(String(64))
    checkpoint: Mapped[str] = mapped_column(String(128))
    prompt: Mapped[str]
    num_arms: Mapped[int]
    baseline_index: Mapped[int] = mapped_column(default=0)
    title: Mapped[str | None]
    note: Mapped[str | None]
    is_starred: Mapped[bool] = mapped_column(Boolean, default=False, server_default=false())
    deleted_at: Mapped[datetime | None]  # as of its runs
