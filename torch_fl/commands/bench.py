"""`torch-fl bench`: the options of the benchmark in torch_fl.bench."""

from __future__ import annotations

import argparse

from .. import bench


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the benchmark."""
    parser.add_argument("--quick", action="store_true", help="the small ops only, fewer rounds")
    parser.add_argument("--groups", default="", metavar="A,B", help=f"of {', '.join(bench.ALL)} (default all)")
    parser.add_argument("--json", metavar="FILE", help="write the numbers to a file")
    parser.add_argument(
        "--against",
        metavar="torch|FILE",
        default="torch",
        help="also show ratios written earlier",
    )
    parser.add_argument("--device", default="npu:0", metavar="npu:N", help="device to measure (default npu:0)")


def run(args: argparse.Namespace) -> int:
    """Measure and print; the benchmark's exit status."""
    return bench.main(args.quick, args.json, args.against, args.device, args.groups)
