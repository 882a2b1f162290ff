#!/usr/bin/env python3
"""Checks the includes of the source tree: check_layers.py [--headers]

- A module includes only itself and modules of lower layers, so no two modules depend on each other.
- Folders do not include each other in a circle. A folder and the folders below it may.
- Public headers (include/) include public headers only.
- Files in kernels/ include core and kernels only. Outside, only device/cuda includes kernels/launch.hpp, and no file
  includes another header of kernels/.
- Only the adapter's own folder, src/command/platform.* and tests include the headers of an adapter.
- An include gives the path below src/ or below include/.
- No two headers define types with the same qualified name: the linker would use the functions of one for both.
- No file has more than 800 lines.
- With --headers: each header compiles alone. The build proves this for headers that are the first include of a source
  file. The others are compiled here.

Prints FILE:LINE: REASON for each violation. Exit code 1 if there are any.
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
MODULES = ["core", "device", "ranks", "model", "workload", "loadtest", "judge", "report", "session", "command"]
LAYERS = {module: layer for layer, module in enumerate(MODULES)}
MAX_LINES = 800
CUDA_INCLUDE = pathlib.Path("/usr/local/cuda/include")
# Per library: a pattern of its header names, and one header whose presence shows that the library is installed.
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


def parts_of(path):
    return path.relative_to(ROOT).parts


def module_of(path):
    """The module of a file: core, device, .., kernels or tests."""
    parts = parts_of(path)
    if parts[:2] == ("include", "egt"):
        return parts[2]
    return parts[1] if parts[0] == "src" else parts[0]


# These communicators enqueue work in native streams of their device's adapter, so they may include its headers.
STREAM_OWNERS = {"mpi_communicator.cpp": "device/host", "nccl_communicator.cpp": "device/cuda"}
ADAPTERS = ("device/host/", "device/cuda/", "ranks/nccl/", "ranks/mpi/mpi_communicator.hpp")


def puts_work_in_streams_of(path, adapter):
    return module_of(path) == "ranks" and STREAM_OWNERS.get(path.name) == adapter


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
    return relative.stem == "platform" and module_of(path) == "command"


def wrong_kernel_include(path, header):
    if module_of(path) == "kernels" or module_of(path) == "tests":
        return None
    if header != "kernels/launch.hpp":
        return f"{header} is for kernels/ only"
    return None if inside(path, "device/cuda") else "kernels/launch.hpp is for device/cuda only"


def wrong_module_include(path, header, target):
    module = module_of(path)
    if target not in LAYERS:
        return f"{header}: there is no module {target}"
    if module == "kernels":
        return None if target == "core" else f"kernels include core and kernels only, not {header}"
    if module == "tests":
        return None
    if parts_of(path)[0] == "include" and not header.startswith("egt/"):
        return f"public headers include public headers only, not {header}"
    if LAYERS[target] > LAYERS[module]:
        return f"{module} (layer {LAYERS[module]}) includes {header} (layer {LAYERS[target]})"
    adapter = adapter_of(header)
    if adapter and puts_work_in_streams_of(path, adapter):
        return None
    if adapter and not inside(path, adapter) and not is_platform(path):
        return f"{header} is an adapter's: only src/{adapter}, src/command/platform.* and tests may include it"
    return None


def wrong_include(path, header):
    """The reason why `path` must not include `header`, or None."""
    parts = header.split("/")
    if parts[0] == "egt":
        return wrong_module_include(path, header, parts[1])
    if header.startswith("kernels/"):
        return wrong_kernel_include(path, header)
    if (ROOT / "src" / header).is_file():
        return wrong_module_include(path, header, parts[0])
    if (path.parent / header).is_file() and module_of(path) != "tests" and module_of(path) != "kernels":
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
    for path in source_files():
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > MAX_LINES:
            yield f"{path.relative_to(ROOT)}:1: {lines} lines; the limit is {MAX_LINES}"


def folder_of(path):
    """workload/train of src/workload/train/..; core of src/core/.. and of include/egt/core/.."""
    parts = parts_of(path)[:-1]
    return "/".join(parts[2:] if parts[:2] == ("include", "egt") else parts[1:] if parts[0] == "src" else parts)


def folder_includes():
    """{folder: {included folder: [FILE:LINE: HEADER]}}, without includes between a folder and those below it."""
    graph = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in source_files():
        if module_of(path) == "tests":
            continue
        for number, header in includes(path):
            target = next((ROOT / base / header for base in ("include", "src", "") if (ROOT / base / header).is_file()), None)
            if target is None:
                continue
            here, there = folder_of(path), folder_of(target)
            if not f"{here}/".startswith(f"{there}/") and not f"{there}/".startswith(f"{here}/"):
                graph[here][there].append(f"{path.relative_to(ROOT)}:{number}: {header}")
    return graph


def reachable(graph, folder):
    """All folders that `folder` includes, directly or through others."""
    found, todo = set(), [folder]
    while todo:
        for other in graph.get(todo.pop(), {}):
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


def circle_errors():
    graph = folder_includes()
    reached = {folder: reachable(graph, folder) for folder in graph}
    for folder in sorted(graph):
        for other, places in sorted(graph[folder].items()):
            if folder in reached.get(other, ()):
                yield f"{places[0]} closes a circle: {other} includes {folder}, directly or through others"


def layer_errors():
    for path in source_files():
        module = module_of(path)
        if module not in LAYERS and module not in ("kernels", "tests"):
            yield f"{path.relative_to(ROOT)}:1: there is no module {module}; the modules are {', '.join(LAYERS)}"
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
    errors = [*layer_errors(), *circle_errors(), *definition_errors(), *size_errors()]
    if "--headers" in arguments:
        errors += header_errors()
    for error in errors:
        print(error)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
