"""How much memory a device has left."""

import psutil
import torch


def free_bytes(device: str) -> int:
    """Bytes that can still be had on `device` ("cpu", "cuda:0") without taking them from anybody."""
    if torch.device(device).type == "cpu":
        return int(psutil.virtual_memory().available)
    free, _ = torch.cuda.mem_get_info(device)
    return int(free)
