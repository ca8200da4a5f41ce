"""Which cards CuPy sees, and why it sees none. CuPy is imported when an adapter for it is asked, and not before."""

from __future__ import annotations

from typing import Any

from torch_fl.runtime.adapter import Discovery, Properties

from ._cupy_libraries import load

_KINDS = {False: ("NVIDIA", "CUDA", "torch_fl[cuda12] or [cuda13]"), True: ("AMD", "ROCm", "torch_fl[rocm]")}
_INSUFFICIENT_DRIVER, _NO_DEVICE = 35, 100
"""cudaError_t and hipError_t: too old a driver, or none; no card that this process may use."""


def discover(hip: bool) -> Discovery:
    """All cards of CUDA, or with `hip` of ROCm; nothing is opened."""
    vendor, platform, extra = _KINDS[hip]
    try:
        import cupy
    except ModuleNotFoundError as error:
        what = "CuPy is not installed" if error.name == "cupy" else f"CuPy lacks {error.name}"
        return Discovery(absent=f"{what}; pip install {extra}")
    except Exception as error:  # noqa: BLE001 - a missing library fails the import in many ways
        return Discovery(absent=f"CuPy is installed but cannot be imported ({_short(error)}); pip install {extra}")
    runtime = cupy.cuda.runtime
    if bool(runtime.is_hip) != hip:
        return Discovery(absent=f"CuPy is built for {_KINDS[not hip][1]}, not for {platform}; pip install {extra}")
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        return Discovery(absent=_why_none(runtime, error, vendor, platform))
    cards = [_properties(runtime, index, vendor, platform) for index in range(count)]
    least = 0 if hip else _least_architecture()
    served = tuple(p for p in cards if 10 * p.major + p.minor >= least)
    left = [_too_old(p, least) for p in cards if p not in served]
    return Discovery(served, "; ".join(left) if cards else f"the {platform} driver lists no card")


def _short(error: Exception) -> str:
    """The cause in CuPy's long text about a failed import, in one line."""
    lines = [line.strip(" =") for line in str(error).partition("Original error:")[2].splitlines() or [str(error)]]
    return next((line for line in lines if line), repr(error))


def _why_none(runtime: Any, error: Any, vendor: str, platform: str) -> str:
    """What stands between CuPy and a card; the driver's own word where it is another reason."""
    status = getattr(error, "status", None)
    if status == _INSUFFICIENT_DRIVER:
        driver, wanted = runtime.driverGetVersion(), runtime.runtimeGetVersion()
        if not driver:
            return f"no {vendor} driver is installed, or this process cannot see it"
        return (
            f"the {vendor} driver is too old: it serves {platform} {_version(driver)}, CuPy is built for "
            f"{_version(wanted)}; install a newer driver, or CuPy for the older {platform}"
        )
    if status == _NO_DEVICE:
        hidden = "CUDA_VISIBLE_DEVICES" if platform == "CUDA" else "HIP_VISIBLE_DEVICES"
        return f"the {vendor} driver lists no card that this process may use ({hidden}?)"
    return f"no {platform} driver or card ({error}); install the card's driver"


def _version(number: int) -> str:
    """CUDA counts 12040 for 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _least_architecture() -> int:
    """The oldest instruction set that this CUDA's compiler makes code for, as 75 for 7.5; 0 where it does not tell."""
    try:
        return int(min(load("cupy_backends.cuda.libs.nvrtc").getSupportedArchs()))
    except Exception:  # noqa: BLE001 - without a compiler the card is listed, and its check says what is missing
        return 0


def _too_old(p: Properties, least: int) -> str:
    return (
        f"{p.name} is of an architecture ({p.major}.{p.minor}) that this CUDA no longer serves: it needs "
        f"{least // 10}.{least % 10}; install CuPy for an older CUDA"
    )


def _architecture(told: dict[str, Any]) -> str:
    """AMD's name of the instruction set, without its features ("gfx90a:sramecc+:xnack-"); CUDA tells none."""
    name = told.get("gcnArchName", "")
    return str(name.decode() if isinstance(name, bytes) else name).partition(":")[0]


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
        architecture=_architecture(told),
        pci_domain_id=domain,
        pci_bus_id=bus,
        pci_device_id=slot,
        handle=index,
    )
