#include "ranks/mpi/mpi_start.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"

namespace egt {
namespace {

constexpr std::size_t max_host_name = 58;  ///< a longer one overflows a buffer of Open MPI 4.1
constexpr std::size_t session_bytes = std::size_t{4} << 20;  ///< needed by Open MPI's session directory

constinit std::atomic<pid_t> starting{0};  ///< the process that is in MPI_Init; a forked child differs

bool has_network() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return true;  // unknown
  bool found = false;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next)
    found = found || ((one->ifa_flags & IFF_UP) != 0 && one->ifa_addr != nullptr);
  ::freeifaddrs(all);
  return found;
}

/// Why Open MPI could not write its session directory; empty if it can.
std::string temporary_folder_problem() {
  const char* folder = "/tmp";
  for (const char* name : {"TMP", "TEMP", "TMPDIR"})
    if (const char* value = std::getenv(name)) folder = value;  // the last one has precedence
  const std::string data(session_bytes, '\0');
  std::string path = fmt::format("{}/extreme_gpu_trainer.XXXXXX", folder);
  const Descriptor file(::mkstemp(path.data()));
  const int error = file.valid() ? write_all(file.get(), data) : errno;
  if (file.valid()) ::unlink(path.c_str());
  if (error == 0) return {};
  return fmt::format("the temporary directory {} is not usable ({}); set TMPDIR to a writable one", folder,
                     std::strerror(error));
}

/// The variables that select components of Open MPI. mpirun sets others on its own.
std::string component_settings() {
  std::string found;
  for (char** one = environ; one != nullptr && *one != nullptr; ++one)
    for (const char* framework : {"btl", "coll", "mtl", "oob", "plm", "pml"})
      if (std::string_view(*one).starts_with(fmt::format("OMPI_MCA_{}", framework)))
        found += (found.empty() ? "" : ", ") + std::string(*one);
  return found;
}

std::string likely_cause() {
  std::string name(256, '\0');
  if (::gethostname(name.data(), name.size() - 1) == 0 && std::strlen(name.c_str()) > max_host_name)
    return fmt::format("the host name has {} letters, and Open MPI 4 allows {}; shorten it",
                       std::strlen(name.c_str()), max_host_name);
  if (!has_network()) return "no network interface is up; enable one, as in: ip link set lo up";
  if (std::string problem = temporary_folder_problem(); !problem.empty()) return problem;
  if (const std::string set = component_settings(); !set.empty())
    return fmt::format("check these variables: {}", set);
  if (const char* job = std::getenv("SLURM_JOB_ID"))
    return fmt::format("check the environment of Slurm job {}; start ranks with srun --mpi=pmix", job);
  return "its messages are above; check TMPDIR, PATH, ulimit -a and the variables OMPI_* and PMIX_*";
}

[[noreturn]] void end_process(int code) {
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

/// If the process is in MPI_Init: reports the likely cause and ends the process. Otherwise returns.
void end_start() {
  pid_t self = ::getpid();
  if (!starting.compare_exchange_strong(self, 0)) return;
  static_cast<void>(
      write_all(STDERR_FILENO, fmt::format("extreme_gpu_trainer: MPI_Init failed: {}\n", likely_cause())));
  end_process(exit_code::no_environment);
}

}  // namespace

MpiStart::MpiStart() {
  static const int registered = std::atexit(end_start);
  static_cast<void>(registered);
  starting = ::getpid();
}

MpiStart::~MpiStart() {
  starting = 0;
}

}  // namespace egt

/// Replaces the C library's function, which MPI's libraries and plug-ins call if MPI_Init fails.
extern "C" [[gnu::visibility("default")]] void _exit(int code) {
  egt::end_start();
  egt::end_process(code);
}
