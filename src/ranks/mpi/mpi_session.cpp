#include "ranks/mpi/mpi_session.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "egt/core/digest.hpp"
#include "egt/core/exit_code.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/wait.hpp"
#include "egt/ranks/topology.hpp"
#include "ranks/mpi/mpi_session_impl.hpp"
#include "ranks/mpi/mpi_start.hpp"

namespace egt {
namespace {

constexpr double orphan_seconds = 0.2;
constexpr std::size_t mpi_bytes = std::size_t{256} << 20;
constexpr int mpi_descriptors = 24;
constexpr int mpi_threads = 12;  // including those of the daemon that it starts without an mpirun

/// Copies one word within this process with the call that Open MPI uses between processes. Seccomp filters of
/// containers deny it for every process.
bool can_copy_between_processes() {
  int from = 1, to = 0;
  const iovec source{&from, sizeof from}, target{&to, sizeof to};
  return ::process_vm_readv(::getpid(), &target, 1, &source, 1, 0) == sizeof to;
}

/// Disables Open MPI's copies between processes if they are denied. Otherwise it prints a line per failure.
std::string avoid_copies_between_processes() {
  const int error = can_copy_between_processes() ? 0 : errno;
  if (error == 0) return {};
  ::setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
  return std::string("process_vm_readv: ") + std::strerror(error) +
         "; MPI copies through shared memory, which is slower; allow the call with --cap-add SYS_PTRACE";
}

Status require_thread_multiple(int provided) {
  if (provided >= MPI_THREAD_MULTIPLE) return {};
  return {StatusCode::unavailable,
          "MPI gives no MPI_THREAD_MULTIPLE: install an Open MPI that was built with thread support"};
}

Result<std::string> own_hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0)
    return Status(StatusCode::unavailable, "gethostname returns no name of this node");
  return std::string(name.data());
}

/// Every rank's hostname, and the lowest rank of its `local` communicator.
Result<std::vector<RankHost>> gather_hosts(MPI_Comm world, MPI_Comm local, const RankPlace& place) {
  struct Entry {
    std::array<char, 256> hostname;
    std::int64_t first_rank;
    Digest digest;  ///< of the members before it
  };
  const auto digest = [](const Entry& entry) {
    return digest_of({reinterpret_cast<const char*>(&entry), offsetof(Entry, digest)});
  };
  Entry own{{}, place.rank, {}};
  place.hostname.copy(own.hostname.data(), own.hostname.size() - 1);
  EGT_TRY(mpi_status(MPI_Bcast(&own.first_rank, 1, MPI_INT64_T, 0, local), "MPI_Bcast"));
  own.digest = digest(own);
  std::vector<Entry> all(static_cast<std::size_t>(place.size));
  EGT_TRY(mpi_status(MPI_Allgather(&own, sizeof own, MPI_BYTE, all.data(), sizeof own, MPI_BYTE, world),
                     "MPI_Allgather"));
  std::vector<RankHost> hosts;
  for (const Entry& entry : all) {
    if (entry.digest != digest(entry)) return Status(StatusCode::aborted, "a host name changed in transit");
    hosts.push_back({entry.hostname.data(), static_cast<int>(entry.first_rank)});
  }
  return hosts;
}

Status find_place(MPI_Comm world, RankPlace& place) {
  EGT_TRY(mpi_status(MPI_Comm_rank(world, &place.rank), "MPI_Comm_rank"));
  EGT_TRY(mpi_status(MPI_Comm_size(world, &place.size), "MPI_Comm_size"));
  MPI_Comm local = MPI_COMM_NULL;
  EGT_TRY(mpi_status(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, place.rank, MPI_INFO_NULL, &local),
                     "MPI_Comm_split_type"));
  EGT_TRY(mpi_status(MPI_Comm_rank(local, &place.local_rank), "MPI_Comm_rank"));
  EGT_TRY(mpi_status(MPI_Comm_size(local, &place.local_size), "MPI_Comm_size"));
  EGT_TRY_ASSIGN(place.hostname, own_hostname());
  EGT_TRY_ASSIGN(const auto hosts, gather_hosts(world, local, place));
  place.host_id = host_id_of(hosts, place.rank, std::getenv("NCCL_HOSTID"));
  EGT_TRY(mpi_status(MPI_Comm_free(&local), "MPI_Comm_free"));
  return {};
}

}  // namespace

Status mpi_status(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {StatusCode::aborted, std::string(call) + " failed: " + text.data(), code};
}

Result<bool> mpi_done(std::span<MPI_Request> requests) {
  int done = 0;
  EGT_TRY(
      mpi_status(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE),
                 "MPI_Testall"));
  return done != 0;
}

Result<MPI_Comm> MpiSession::Impl::duplicate(double timeout_seconds) {
  // MPI writes the new communicator when the request completes, possibly after this call has timed out.
  auto made = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  EGT_TRY(mpi_status(MPI_Comm_idup(world, made.get(), &request), "MPI_Comm_idup"));
  const Status status = wait_until(
      [&] {
        return mpi_done({&request, 1});
      },
      {.seconds = timeout_seconds, .what = "the opening of a communicator by all ranks"});
  if (!status.ok()) {
    adopt({{request}, made});
    return status;
  }
  return *made;
}

void MpiSession::Impl::adopt(MpiOrphan orphan) {
  const std::lock_guard lock(mutex_);
  orphans_.push_back(std::move(orphan));
}

Result<bool> MpiSession::Impl::orphans_done() {
  const std::lock_guard lock(mutex_);
  while (!orphans_.empty()) {
    EGT_TRY_ASSIGN(const bool done, mpi_done(orphans_.back().requests));
    if (!done) return false;
    orphans_.pop_back();
  }
  return true;
}

Status MpiSession::Impl::meet() {
  if (abandoned) return {StatusCode::aborted, "MPI was abandoned"};
  MPI_Request barrier = MPI_REQUEST_NULL;
  EGT_TRY(mpi_status(MPI_Ibarrier(world, &barrier), "MPI_Ibarrier"));
  return wait_until(
      [&] {
        return mpi_done({&barrier, 1});
      },
      {.seconds = finalize_seconds, .what = "the end of MPI on all ranks"});
}

namespace {

/// MPI_Finalize waits for daemons and network drivers. If it hangs, this thread ends the process.
void end_after_a_minute(const std::stop_token& finalized) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any never;
  never.wait_for(lock, finalized, std::chrono::seconds(60), [] { return false; });
  if (finalized.stop_requested()) return;
  static_cast<void>(write_all(
      STDERR_FILENO, "extreme_gpu_trainer: MPI_Finalize does not return; the rank ends without it\n"));
  std::_Exit(code_without_verdict);
}

}  // namespace

void MpiSession::Impl::close() {
  const bool together = meet().ok();
  const bool clean =
      wait_until([this] { return orphans_done(); }, {.seconds = orphan_seconds, .what = "the last messages"})
          .ok();
  if (together) {
    MPI_Comm_free(&world);
    const auto deadline = start_thread<std::jthread>("the end of MPI", end_after_a_minute);  // or no limit
    MPI_Finalize();
  }
  // MPI may use pending memory until the process ends, so that memory is leaked.
  if (!clean) [[maybe_unused]]
    auto* left_to_mpi = new std::vector<MpiOrphan>(std::move(orphans_));
}

MpiSession::MpiSession(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<MpiSession>> MpiSession::open(int& argc, char**& argv) {
  int initialized = 0;
  EGT_TRY(mpi_status(MPI_Initialized(&initialized), "MPI_Initialized"));
  if (initialized) return Status(StatusCode::internal, "MPI was already started in this process");
  // Without these resources MPI crashes, or exits with 1, which would mean a fault.
  EGT_TRY(check_address_space("the start of MPI", mpi_bytes));
  EGT_TRY(check_threads("the start of MPI", mpi_threads));
  EGT_TRY(check_descriptors("the start of MPI", mpi_descriptors));
  std::string warning = avoid_copies_between_processes();
  int provided = MPI_THREAD_SINGLE;
  {
    const MpiStart start;
    EGT_TRY(mpi_status(MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread"));
  }
  if (const Status status = require_thread_multiple(provided); !status.ok()) {
    MPI_Finalize();  // all ranks get the same answer, so all finalize
    return status;
  }
  auto impl = std::make_unique<Impl>();
  impl->warning = std::move(warning);
  EGT_TRY(mpi_status(MPI_Comm_dup(MPI_COMM_WORLD, &impl->world), "MPI_Comm_dup"));
  EGT_TRY(mpi_status(MPI_Comm_set_errhandler(impl->world, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"));
  EGT_TRY(find_place(impl->world, impl->place));
  return std::unique_ptr<MpiSession>(new MpiSession(std::move(impl)));
}

MpiSession::~MpiSession() {
  impl_->close();
}

const RankPlace& MpiSession::place() const {
  return impl_->place;
}

const std::string& MpiSession::warning() const {
  return impl_->warning;
}

std::string MpiSession::mpi_version() const {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING + 1> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return {};
  std::string version(text.data());
  version.resize(std::min(version.find_first_of(",\n"), version.size()));
  if (const auto v = version.find(" v"); v != std::string::npos) version.erase(v + 1, 1);
  return version;
}

void MpiSession::abandon() {
  impl_->abandoned = true;
}

}  // namespace egt
