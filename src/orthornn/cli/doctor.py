"""`orthornn doctor`: what this machine and this installation can do."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import torch

from ..errors import ArgumentError
from ..kernels import plan
from ..training.directory import environment

EXTRAS = {
    "tyro": "the command line",
    "rich": "live progress and tables",
    "matplotlib": "figures",
}

# For a GPU, where the size decides which backend is used: these are shown.
SIZES = {
    "dense N=128": plan.Size(128, batch=128, steps=784),
    "dense N=170": plan.Size(170, batch=128, steps=784),
    "dense N=512": plan.Size(512, batch=128, steps=784),
    "reflections 256, 32": plan.Size(256, 32, 128, 784),
    "reflections 1024, 32": plan.Size(1024, 32, 128, 784),
    "reflections 512, 128": plan.Size(512, 128, 128, 784),
}


def main(words: Sequence[str]) -> int:
    """Run the command; the exit status."""
    if words and words[0] in ("-h", "--help"):
        print("orthornn doctor - say what this machine and this installation can do\n\nusage: orthornn doctor")
        return 0
    if words:
        raise ArgumentError(f"doctor takes no options; got {' '.join(words)}.")
    found = environment()
    print(f"orthornn    {found['orthornn'] or 'not installed, imported from its source tree'}")
    print(f"python      {found['python']}   torch {found['torch']}   numpy {found['numpy']}")
    print(f"processor   {found['processor']}, {found['cores']} cores, {found['threads']} threads for torch")
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    for device in devices:
        name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
        print(f"kernels on {device}{name}, in order of preference:")
        for backend, reason in plan.available(device).items():
            print(f"  {backend:<12}{'available' if reason is None else f'not available: {reason}'}")
        if device.type == "cuda":
            for words, size in SIZES.items():
                print(f"    {words:<22}{plan.describe(device, size)}")
    print("extras:")
    for package, use in EXTRAS.items():
        here = importlib.util.find_spec(package) is not None
        print(f"  {package:<12}{'installed' if here else 'missing'}: {use}")
    return 0
