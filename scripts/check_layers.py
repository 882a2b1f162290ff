#!/usr/bin/env python3
"""Checks who includes whom: check_layers.py [--headers]

- a room includes only from itself and from lower floors; so no two rooms need each other;
- files in kernels/ include core and kernels only; kernels/launch.hpp is for device/cuda, the other files there
  for nobody outside;
- headers of adapters are included by their own folder, by src/command/platform.* and by tests only;
- a header in src/ is named by its path below src/, one in include/ by its path below include/;
- no two headers define types of one name in one namespace: the linker would take either's functions for both;
- no folder holds more than 25 files, no file more than 800 lines;
- with --headers: each header compiles alone. The build has shown that already of those that a source file of
  ours includes before all others; the rest is compiled here.

Prints FILE:LINE: what is wrong, and ends with 1 if anything is.
"""

import collections
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROOMS = ["core", "device", "ranks", "model", "workload", "judge", "report", "session", "command"]
FLOORS = {room: floor for floor, room in enumerate(ROOMS)}
MOST_FILES, MOST_LINES = 25, 800
CUDA_INCLUDE = pathlib.Path("/usr/local/cuda/include")
# What their headers are named like, and one by which it is seen whether they are here.
OPTIONAL_LIBRARIES = {"cuda|cublas|nccl": "cuda_runtime_api.h", "cudnn": "cudnn.h", "dnnl": "dnnl.hpp"}
SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<((?:egt|kernels)/[^>]+)>)')

NAMESPACE = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{")
TYPE = re.compile(r"(?:template <.*> )?(?:class|struct|union|enum class|enum) (?:alignas\(.*?\) )?(\w+)(?: final)?(?: :[^:].*)?(?: \{|$)")


def source_files():
    for folder in ("include", "src", "kernels", "tests"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SUFFIXES:
                yield path


def includes(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1) or match.group(2)


def room_of(path):
    """The room of a file of the tree: core, device, .., or kernels or tests."""
    parts = path.relative_to(ROOT).parts
    if parts[:2] == ("include", "egt"):
        return parts[2]
    return parts[1] if parts[0] == "src" else parts[0]


# A communicator puts its work in its device's own kind of stream.
STREAM_OWNERS = {"mpi_communicator.cpp": "device/host", "nccl_communicator.cpp": "device/cuda"}
ADAPTERS = ("device/host/", "device/cuda/", "ranks/nccl/", "ranks/mpi/mpi_communicator.hpp")


def puts_work_in_streams_of(path, adapter):
    return room_of(path) == "ranks" and STREAM_OWNERS.get(path.name) == adapter


def adapter_of(header):
    """The folder of the adapter that a header belongs to ("device/host"), or None: a port or anything else.

    Of `ranks` these are the communicators; what starts MPI itself is for `main`.
    """
    adapter = next((adapter for adapter in ADAPTERS if header.startswith(adapter)), None)
    return adapter and str(pathlib.PurePosixPath(header).parent)


def inside(path, folder):
    return path.relative_to(ROOT).is_relative_to(f"src/{folder}")


def is_platform(path):
    relative = path.relative_to(ROOT)
    return relative.stem == "platform" and room_of(path) == "command"


def wrong_kernel_include(path, header):
    if room_of(path) == "kernels" or room_of(path) == "tests":
        return None
    if header != "kernels/launch.hpp":
        return f"{header} is for kernels/ only"
    return None if inside(path, "device/cuda") else "kernels/launch.hpp is for device/cuda only"


def wrong_room_include(path, header, target):
    room = room_of(path)
    if target not in FLOORS:
        return f"{header}: there is no room {target}"
    if room == "kernels":
        return None if target == "core" else f"kernels include core and kernels only, not {header}"
    if room == "tests":
        return None
    if FLOORS[target] > FLOORS[room]:
        return f"{room} (floor {FLOORS[room]}) includes {header} (floor {FLOORS[target]})"
    adapter = adapter_of(header)
    if adapter and puts_work_in_streams_of(path, adapter):
        return None
    if adapter and not inside(path, adapter) and not is_platform(path):
        return f"{header} is an adapter's: only src/{adapter}, src/command/platform.* and tests may include it"
    return None


def wrong_include(path, header):
    """Why `path` must not include `header`, or None."""
    parts = header.split("/")
    if parts[0] == "egt":
        return wrong_room_include(path, header, parts[1])
    if header.startswith("kernels/"):
        return wrong_kernel_include(path, header)
    if (ROOT / "src" / header).is_file():
        return wrong_room_include(path, header, parts[0])
    if (path.parent / header).is_file() and room_of(path) != "tests" and room_of(path) != "kernels":
        return f"{header}: write its path below src/"
    return None  # a library's header


def types_of(path):
    """(line, qualified name) of the types that a file defines in a namespace, not in another type."""
    namespaces = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if match := NAMESPACE.match(line):
            namespaces.append(match.group(1))
        elif line.startswith("}  // namespace"):
            namespaces.pop()
        elif match := TYPE.match(line):
            yield number, "::".join([*namespaces, match.group(1)])


def definition_errors():
    places = {}
    for path in source_files():
        for number, name in types_of(path) if path.suffix in (".hpp", ".cuh") else ():
            if name in places:
                yield f"{path.relative_to(ROOT)}:{number}: {places[name]} defines another {name}"
            places[name] = path.relative_to(ROOT)


def size_errors():
    counts = collections.Counter()
    for path in source_files():
        counts[path.parent] += 1
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MOST_LINES:
            yield f"{path.relative_to(ROOT)}:1: {lines} lines; more than {MOST_LINES} are two files"
    for folder, count in counts.items():
        if count > MOST_FILES:
            yield f"{folder.relative_to(ROOT)}: {count} files; more than {MOST_FILES} are two folders"


def layer_errors():
    for path in source_files():
        room = room_of(path)
        if room not in FLOORS and room not in ("kernels", "tests"):
            yield f"{path.relative_to(ROOT)}:1: there is no room {room}; the rooms are {', '.join(FLOORS)}"
            continue
        for number, header in includes(path):
            reason = wrong_include(path, header)
            if reason:
                yield f"{path.relative_to(ROOT)}:{number}: {reason}"


def library_flags():
    """The include folders of MPI and of CUDA, as far as they are there."""
    flags = []
    if shutil.which("mpicxx"):
        shown = subprocess.run(["mpicxx", "-showme:compile"], capture_output=True, text=True, check=False)
        flags += [flag.replace("-I", "-isystem", 1) for flag in shlex.split(shown.stdout)]
    if CUDA_INCLUDE.is_dir():
        flags += ["-isystem", str(CUDA_INCLUDE)]
    return flags


def with_included(header, seen):
    """The header and all of the project's that it includes, directly or not."""
    if header in seen or not header.is_file():
        return seen
    seen.add(header)
    for name in re.findall(r'^#include "([^"]+)"', header.read_text(encoding="utf-8"), re.MULTILINE):
        for folder in ("include", "src"):
            with_included(ROOT / folder / name, seen)
    return seen


def missing_library(header):
    """The header of an optional library that is not here and is included, directly or not; or None."""
    text = "".join(one.read_text(encoding="utf-8") for one in with_included(header, set()))
    folders = (CUDA_INCLUDE, pathlib.Path("/usr/include"))
    return next((found_by for names, found_by in OPTIONAL_LIBRARIES.items()
                 if re.search(rf"#\s*include\s*<({names})", text)
                 and not any((folder / found_by).is_file() for folder in folders)), None)


def compile_alone(header, flags):
    name = header.relative_to(ROOT / ("include" if header.is_relative_to(ROOT / "include") else "src"))
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror",
               "-I", str(ROOT / "include"), "-I", str(ROOT / "src"), "-I", str(ROOT), *flags, "-x", "c++", "-"]
    result = subprocess.run(command, input=f'#include "{name}"\n', capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return None
    first = next((line for line in result.stderr.splitlines() if "error" in line), result.stderr.strip())
    return f"{header.relative_to(ROOT)}:1: does not compile alone: {first}"


def headers_compiled_first():
    """The headers that stand first in a source file which every build compiles."""
    for path in (ROOT / "src").rglob("*.cpp"):
        first = next(re.finditer(r'^#include [<"]([^">]+)[">]', path.read_text(encoding="utf-8"), re.MULTILINE), None)
        needs_cuda = inside(path, "device/cuda") or puts_work_in_streams_of(path, "device/cuda")
        if first and not needs_cuda:
            yield from (ROOT / folder / first.group(1) for folder in ("include", "src"))


def header_errors():
    flags = library_flags()
    headers = []
    every = {*(ROOT / "include").rglob("*.hpp"), *(ROOT / "src").rglob("*.hpp")}
    for header in sorted(every - set(headers_compiled_first())):
        if missing := missing_library(header):
            print(f"{header.relative_to(ROOT)}: not compiled, since {missing} is not here", file=sys.stderr)
        else:
            headers.append(header)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(lambda header: compile_alone(header, flags), headers))


def main(arguments):
    unknown = set(arguments) - {"--headers"}
    if unknown:
        print(f"check_layers.py: unknown option {sorted(unknown)[0]}; allowed: --headers", file=sys.stderr)
        return 2
    errors = [*layer_errors(), *definition_errors(), *size_errors()]
    if "--headers" in arguments:
        errors += header_errors()
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
