#!/usr/bin/env python3
"""Checks that every #include follows the layering: which folder may include which, and which may name a library.

Usage: tests/check_layers.py [ROOT]
"""
import pathlib
import re
import sys

TOPS = ("trainer", "server", "client")
TRAINER = ["trainer/base", "trainer/data", "trainer/nn", "trainer/optim", "trainer/backend", "trainer/train"]

# Folder or beginning of file names -> what its files may include beside it. The longest that fits a file rules it.
FOLDERS = {
    "trainer/base": [],
    "trainer/data": ["trainer/base"],
    "trainer/nn": ["trainer/base", "trainer/data"],
    "trainer/optim": ["trainer/base"],
    "trainer/comm": ["trainer/base"],
    "trainer/comm/nccl": ["trainer/base", "trainer/comm", "trainer/backend/cuda"],
    "trainer/comm/peer": ["trainer/base", "trainer/backend/cuda"],
    "trainer/backend": ["trainer/base", "trainer/data", "trainer/nn", "trainer/optim"],
    "trainer/backend/cpu": ["trainer/base", "trainer/data", "trainer/nn", "trainer/optim", "trainer/comm",
                            "trainer/backend"],
    "trainer/backend/cuda": ["trainer/base", "trainer/data", "trainer/nn", "trainer/optim", "trainer/comm",
                             "trainer/comm/nccl", "trainer/comm/peer", "trainer/backend"],
    "trainer/train": TRAINER + ["trainer/comm"],
    "server/telemetry": [],
    "server/store": TRAINER + ["lenet/v1", "server/telemetry"],
    "server/metrics": TRAINER + ["lenet/v1", "server/store"],
    "server/job": TRAINER + ["lenet/v1", "server/telemetry", "server/store", "server/metrics"],
    "server/rpc": TRAINER + ["lenet/v1", "server/telemetry", "server/store", "server/metrics", "server/job"],
    "server/monitoring": TRAINER + ["lenet/v1", "server/telemetry", "server/store", "server/job"],
    "server": TRAINER + ["lenet/v1", "server/store", "server/metrics", "server/job", "server/rpc",
                         "server/monitoring"],
    "client": ["lenet/v1"],
}

# What a library's headers look like, and the paths that may include them.
LIBRARIES = {
    "gRPC": (r"grpc(pp|\+\+)?/|.*\.grpc\.pb\.h$", ["server/rpc/", "client/"]),
    "Protobuf": (r"google/protobuf/|.*\.pb\.h$", ["server/", "client/"]),
    "SQLite": (r"sqlite3", ["server/store/"]),
    "prometheus-cpp": (r"prometheus/|CivetServer\.h|civetweb\.h", ["server/monitoring/"]),
    "OpenSSL": (r"openssl/", ["server/rpc/"]),
    "CUDA": (r"cuda|cublas|cudnn|nccl|cub/|thrust/|cooperative_groups|driver_types|nvrtc|nvtx",
             ["trainer/backend/cuda/", "trainer/comm/nccl", "trainer/comm/peer"]),
    "zlib": (r"zlib\.h", ["trainer/data/"]),
    "toml++": (r"toml\+\+/", ["server/toml_file.cc", "client/ctl/context_file.cc"]),
    "CLI11": (r"CLI/", ["server/", "client/"]),
    "a lock without annotations": (r"(mutex|shared_mutex|condition_variable|absl/synchronization/mutex\.h)$",
                                   ["trainer/base/mutex.h"]),
}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]')
SOURCES = {".h", ".cc", ".cu", ".cuh"}


def folder_of(path):
    """The longest key of FOLDERS that fits `path`, or None."""
    fitting = [f for f in FOLDERS if re.match(re.escape(f) + "[/._]", path)]
    return max(fitting, key=len, default=None)


def check(root, path, included):
    """What is wrong with `path` including `included`, or None."""
    for name, (pattern, allowed) in LIBRARIES.items():
        if re.match(pattern, included) and not any(path.startswith(a) for a in allowed):
            return f"{name}: allowed in {', '.join(allowed)} alone"
    own = folder_of(path)
    if included.startswith("lenet/v1/"):
        target = "lenet/v1"
    elif included.split("/")[0] in (*TOPS, "tests"):
        target = folder_of(included)
    elif (root / path).parent.joinpath(included).exists():
        return "not a path from the repository root"
    else:
        return None  # of a library
    if target != own and target not in FOLDERS[own]:
        return f"{own} may not include {target or included}"
    return None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    errors = []
    files = 0
    for top in TOPS:
        for file in sorted((root / top).rglob("*")):
            if file.suffix not in SOURCES or "node_modules" in file.parts:
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            if folder_of(path) is None:
                errors.append(f"{path}:1: has no rule in tests/check_layers.py")
                continue
            for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                match = INCLUDE.match(line)
                error = match and check(root, path, match[1])
                if error:
                    errors.append(f"{path}:{number}: includes {match[1]}: {error}")
    for error in errors:
        print(error)
    print(f"check_layers: {files} files, {len(errors)} errors")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main())
