"""Which OpenCL devices there are, and what their drivers say about them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from torch_fl.runtime.adapter import Discovery, Properties

from ._opencl_inline import is_inline, offered
from ._pocl_target import name_the_cpu
from ._pocl_workers import spread


def discover() -> Discovery:
    """All devices: cards first. Of several CPU drivers only the first platform's is taken."""
    try:
        import pyopencl as cl
    except Exception as error:  # noqa: BLE001 - a broken driver library fails the import in many ways
        return Discovery(absent=f"pyopencl cannot be imported ({error}); pip install 'torch_fl[cpu]' or [opencl]")
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        return Discovery(absent=f"no OpenCL platform ({error}); install the card's driver or torch_fl[cpu]")
    found: list[Properties] = []
    cpu_platform = None
    for platform in platforms:
        try:
            with offered(platform), spread() if "PoCL" in platform.version else nullcontext():
                devices = platform.get_devices()
        except cl.Error:
            continue
        shown = [d for d in devices if not is_inline(d)] or devices
        for device in devices:
            # Every CPU driver shows the same CPU: take the first platform's view of it and no other.
            if device.type & cl.device_type.CPU:
                cpu_platform = cpu_platform or platform
                if platform != cpu_platform:
                    continue
                name_the_cpu(device.int_ptr)
            if device in shown:
                found.append(_properties(cl, device, sum(p.kind == "cpu" for p in found)))
    found.sort(key=lambda p: ("gpu", "accelerator", "cpu").index(p.kind))
    return Discovery(tuple(found), "" if found else "OpenCL platforms are present but list no device")


def _kind(cl: Any, device: Any) -> str:
    kinds = {cl.device_type.GPU: "gpu", cl.device_type.CPU: "cpu", cl.device_type.ACCELERATOR: "accelerator"}
    return next((name for bit, name in kinds.items() if device.type & bit), "accelerator")


def _asked(device: Any, *names: str) -> tuple[Any, ...] | None:
    """What a driver answers to vendor queries; None where it does not know one of them."""
    try:
        return tuple(getattr(device, name) for name in names)
    except Exception:  # noqa: BLE001 - each driver raises its own type for a query it does not know
        return None


def _pci(device: Any) -> tuple[int, int, int]:
    """(domain, bus, device) on the PCI bus; -1 where the driver does not tell."""
    khr = _asked(device, "pci_bus_info_khr")
    if khr is not None:
        return int(khr[0].pci_domain), int(khr[0].pci_bus), int(khr[0].pci_device)
    nv = _asked(device, "pci_bus_id_nv", "pci_slot_id_nv")
    if nv is not None:
        domain = _asked(device, "pci_domain_id_nv") or (0,)
        return int(domain[0]), int(nv[0]), int(nv[1]) >> 3
    amd = _asked(device, "topology_amd")
    if amd is not None and hasattr(amd[0], "bus"):
        return 0, int(amd[0].bus), int(amd[0].device)
    return -1, -1, -1


_VERSIONS = (
    ("compute_capability_major_nv", "compute_capability_minor_nv"),
    ("gfxip_major_amd", "gfxip_minor_amd"),
)


def _capability(device: Any) -> tuple[int, int]:
    """The version of the chip's instruction set as its vendor counts it; (0, 0) where the driver does not tell."""
    found = next((v for names in _VERSIONS if (v := _asked(device, *names)) is not None), (0, 0))
    return int(found[0]), int(found[1])


def _properties(cl: Any, device: Any, nth: int) -> Properties:
    extensions = device.extensions.split()
    kind = _kind(cl, device)
    domain, bus, slot = _pci(device)
    mark = f"pci:{domain}:{bus}:{slot}" if bus >= 0 else f"{device.vendor}:{device.name}"
    return Properties(
        name=device.name.strip(),
        vendor=device.vendor.strip(),
        driver=f"{device.platform.name} {device.driver_version}".strip(),
        kind=kind,
        total_memory=device.global_mem_size,
        compute_units=device.max_compute_units,
        local_memory=device.local_mem_size,
        fp64="cl_khr_fp64" in extensions,
        fp16="cl_khr_fp16" in extensions,
        int64_atomics="cl_khr_int64_base_atomics" in extensions,
        host_memory=kind == "cpu" or bool(device.host_unified_memory),
        fingerprint=f"cpu:{nth}" if kind == "cpu" else mark,
        capability=_capability(device),
        pci_domain_id=domain,
        pci_bus_id=bus,
        pci_device_id=slot,
        handle=device,
    )
