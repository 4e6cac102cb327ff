"""Measurements. Each process waits like a worker does: without this bound one busy core of the machine stalls a pass of
transformers or ours for seconds, and no ratio means anything."""

from workers.settings import limit_spinning

limit_spinning()  # before torch is imported
