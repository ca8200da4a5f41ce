"""Which cards CuPy sees, and why it sees none. CuPy is imported when an adapter for it is asked, and not before."""

from __future__ import annotations

from typing import Any

from torch_fl.runtime.adapter import Discovery, Properties

_KINDS = {False: ("NVIDIA", "CUDA", "torch_fl[cuda12] or [cuda13]"), True: ("AMD", "ROCm", "torch_fl[rocm]")}


def discover(hip: bool) -> Discovery:
    """All cards of CUDA, or with `hip` of ROCm; nothing is opened."""
    vendor, platform, extra = _KINDS[hip]
    try:
        import cupy
    except Exception as error:  # noqa: BLE001 - a missing driver library fails the import in many ways
        return Discovery(absent=f"cupy cannot be imported ({error}); pip install {extra}")
    runtime = cupy.cuda.runtime
    if bool(runtime.is_hip) != hip:
        return Discovery(absent=f"cupy is built for {_KINDS[not hip][1]}, not for {platform}; pip install {extra}")
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return Discovery(absent=f"no {platform} driver or card ({error}); install the card's driver")
    found = tuple(_properties(runtime, index, vendor, platform) for index in range(count))
    return Discovery(found, "" if found else f"the {platform} driver lists no card")


def _properties(runtime: Any, index: int, vendor: str, platform: str) -> Properties:
    told = runtime.getDeviceProperties(index)
    domain, bus, slot = (int(told[f"pci{part}ID"]) for part in ("Domain", "Bus", "Device"))
    name = told["name"]
    return Properties(
        name=name.decode() if isinstance(name, bytes) else name,
        vendor=vendor,
        driver=f"{platform} {runtime.driverGetVersion()}",
        kind="gpu",
        total_memory=int(told["totalGlobalMem"]),
        compute_units=int(told["multiProcessorCount"]),
        local_memory=int(told["sharedMemPerBlock"]),
        fp64=True,
        fp16=True,
        int64_atomics=True,
        host_memory=bool(told.get("integrated")),
        fingerprint=f"pci:{domain}:{bus}:{slot}",  # as backends/_opencl_discovery.py makes it
        capability=(int(told["major"]), int(told["minor"])),
        pci_domain_id=domain,
        pci_bus_id=bus,
        pci_device_id=slot,
        handle=index,
    )
