"""What computes."""

import torch


def hardware(device: torch.device) -> str:
    """What computed, in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} threads"
