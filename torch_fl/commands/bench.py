"""`torch-fl bench`: the options of the benchmark in torch_fl.bench."""

from __future__ import annotations

import argparse

from .. import bench


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the benchmark."""
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", metavar="FILE", help="write the numbers to a file")
    parser.add_argument("--against", metavar="FILE", help="compare with numbers written earlier")
    parser.add_argument("--device", default="npu:0", metavar="npu:N", help="device to measure (default npu:0)")


def run(args: argparse.Namespace) -> int:
    """Measure and print; the benchmark's exit status."""
    return bench.main(quick=args.quick, json_file=args.json, against=args.against, device=args.device)
