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
    "scipy": "piano rolls, and sounds of another sampling rate",
    "pyarrow": "your own data in Parquet files",
    "pooch": "downloads",
    "soundfile": "FLAC, OGG and NIST SPHERE",
    "pystoi": "STOI of reconstructed speech",
    "pesq": "PESQ of reconstructed speech",
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
    print("extras:")
    for package, use in EXTRAS.items():
        here = importlib.util.find_spec(package) is not None
        print(f"  {package:<12}{'installed' if here else 'missing'}: {use}")
    return 0
