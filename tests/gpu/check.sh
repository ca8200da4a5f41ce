#!/usr/bin/env bash
# What a card does, for whoever has one: its devices, the contract of its adapter, ops, gradients, models and speed.
#
#   tests/gpu/check.sh [cuda|rocm|opencl] [folder]
#
# Run it from an environment that has torch_fl with the card's extra and the test extra; it installs nothing. Each part
# has a limit, all of them together stay under 9 minutes. The folder gets a log of each part and report.json: exit
# status, seconds, last lines, and the numbers of ops, shapes (how fast the card's own kernels are) and bench. Exits
# with 1 if a part failed.
set -uo pipefail
cd "$(dirname "$0")/../.."
adapter=${1:-cuda}
folder=$(realpath -m "${2:-gpu-report}")
mkdir -p "$folder"
rm -f "$folder"/*.log "$folder"/*.json "$folder"/*.jsonl "$folder/parts"
export TORCH_FL_BACKENDS=$adapter TORCH_FL_CACHE=${TORCH_FL_CACHE:-$folder/cache}

part() { # name, limit in seconds, command
  local name=$1 limit=$2 start=$SECONDS status
  shift 2
  timeout "$limit" "$@" >"$folder/$name.log" 2>&1
  status=$?
  echo "$name $status $((SECONDS - start))" | tee -a "$folder/parts"
}

pytest="python -m pytest -q -p no:cacheprovider"
part devices 40 torch-fl devices --json
part contract 60 $pytest tests/test_bringup.py tests/test_streams.py -k "not toy"
part memory 30 $pytest tests/test_memory.py -k "not peak_of_training"
part ops 100 python tests/opinfo.py --backend "$adapter" --groups forward --dtypes float32 --count 1 --json "$folder/ops.jsonl"
part gradients 80 python tests/opinfo.py --backend "$adapter" --groups gradient --dtypes float32 --count 1 --json "$folder/gradients.jsonl"
part tiles 60 $pytest tests/test_groups.py tests/test_tiles.py tests/test_row_groups.py tests/test_conv_tiles.py \
  tests/test_attention_tiles.py tests/test_fours.py tests/test_transpose_groups.py -k "not fibers and not stand_in"
part models 60 $pytest tests/test_models.py
part shapes 60 python tests/gpu/shapes.py --json "$folder/shapes.json"
part bench 50 torch-fl bench --quick --json "$folder/bench.json"

python - "$adapter" "$folder" <<'PYTHON'
import json, platform, sys
from pathlib import Path

import torch

adapter, folder = sys.argv[1], Path(sys.argv[2])


def kept(name):
    """What a part wrote, as data; None where it wrote nothing."""
    path = folder / name
    if not path.exists():
        return None
    lines = path.read_text().splitlines()
    return json.loads("\n".join(lines)) if path.suffix == ".json" else [json.loads(line) for line in lines]


parts = {}
for line in (folder / "parts").read_text().splitlines():
    name, status, seconds = line.split()
    log = (folder / f"{name}.log").read_text(errors="replace").splitlines()
    parts[name] = {"status": int(status), "seconds": int(seconds), "end": log[-15:]}
ops = {n: [r for r in kept(f"{n}.jsonl") or [] if r["error"]] for n in ("ops", "gradients")}
report = {
    "adapter": adapter, "torch": torch.__version__, "python": platform.python_version(), "parts": parts,
    "failed_ops": ops, "shapes": kept("shapes.json"), "bench": kept("bench.json"),
}
(folder / "report.json").write_text(json.dumps(report, indent=1))
print(folder / "report.json")
sys.exit(any(p["status"] for p in parts.values()))
PYTHON
