#!/usr/bin/env bash
# What a card does, for whoever has one: its devices, the contract of its adapter, ops, gradients, models and speed.
#
#   tests/gpu/check.sh [cuda|rocm|opencl] [folder]
#
# Run it from an environment that has torch_fl with the card's extra and the test extra; it installs nothing. Each part
# has a limit, all of them together stay under 10 minutes. The folder gets a log of each part, report.json (exit status,
# seconds, last lines, and the numbers of ops, copies, layers, shapes and bench) and report.txt, the same as tables. Exits
# with 1 if a part failed. PARTS="devices copies" runs some parts only; SMALL=1 takes small sizes, for the stand-in for CuPy:
#
#   SMALL=1 PYTHONPATH=tests/double:tests tests/gpu/check.sh cuda
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
  [[ -z ${PARTS:-} || " $PARTS " == *" $name "* ]] || return 0
  timeout "$limit" "$@" >"$folder/$name.log" 2>&1
  status=$?
  echo "$name $status $((SECONDS - start))" | tee -a "$folder/parts"
}

pytest="python -m pytest -q -p no:cacheprovider"
small=${SMALL:+--small}
part devices 30 torch-fl devices --json
part contract 50 $pytest tests/test_bringup.py tests/test_streams.py -k "not toy${SMALL:+ and not event_times}"
part memory 25 $pytest tests/test_memory.py -k "not peak_of_training"
part copies 20 python tests/gpu/copies.py $small --json "$folder/copies.json"
part libraries 55 $pytest tests/test_linalg.py tests/test_fft.py tests/test_sort.py tests/test_scan.py
part ops 80 python tests/opinfo.py --backend "$adapter" --groups forward --dtypes float32 --count 1 --json "$folder/ops.jsonl"
part gradients 60 python tests/opinfo.py --backend "$adapter" --groups gradient --dtypes float32 --count 1 --json "$folder/gradients.jsonl"
part tiles 45 $pytest tests/test_groups.py tests/test_tiles.py tests/test_row_groups.py tests/test_conv_tiles.py \
  tests/test_attention_tiles.py tests/test_fours.py tests/test_transpose_groups.py -k "not fibers and not stand_in"
part models 40 $pytest tests/test_models.py
part layers 90 python tests/gpu/layers.py $small --json "$folder/layers.json"
part shapes 45 python tests/gpu/shapes.py $small --json "$folder/shapes.json"
part bench 20 torch-fl bench --quick --json "$folder/bench.json"

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
    "failed_ops": ops, "copies": kept("copies.json"), "layers": kept("layers.json"), "shapes": kept("shapes.json"),
    "bench": kept("bench.json"),
}
(folder / "report.json").write_text(json.dumps(report, indent=1))
rows = [(n, "ok" if not p["status"] else f"failed ({p['status']})", f"{p['seconds']} s") for n, p in parts.items()]
rows += [(n, f"{line['GB/s']:.1f} GB/s", "") for n, line in (report["copies"] or {}).items()]
rows += [(n, f"{line['library ms']:.3f} ms", f"ours {line['ours ms']:.3f}") for n, line in (report["layers"] or {}).items()]
rows += [(n, f"{line['rate']:.2f} {line['unit']}", f"{line['ms']:.3f} ms") for n, line in (report["shapes"] or {}).items()]
rows += [(" ".join(r["node"]), "failed", n) for n, failed in ops.items() for r in failed]
table = "\n".join(f"{a:52} {b:>16} {c:>12}" for a, b, c in rows)
(folder / "report.txt").write_text(table + "\n")
print(table, folder / "report.json", sep="\n")
sys.exit(any(p["status"] for p in parts.values()))
PYTHON
