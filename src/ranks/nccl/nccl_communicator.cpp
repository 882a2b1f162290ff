#include "ranks/nccl/nccl_communicator.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda/cuda_native.hpp"
#include "device/shared/shared_handle.hpp"
#include "egt/core/process_limits.hpp"
#include "egt/core/wait.hpp"
#include "ranks/messages.hpp"

namespace egt {
namespace {

/// Ok for ncclSuccess, else why `doing` failed, with NCCL's error text.
Status nccl_status(ncclResult_t result, std::string_view doing, ncclComm_t communicator = nullptr) {
  if (result == ncclSuccess) return {};
  const StatusCode code = result == ncclInvalidArgument || result == ncclInvalidUsage ? StatusCode::internal
                                                                                      : StatusCode::aborted;
  const char* detail = ncclGetLastError(communicator);
  return Status(code,
                fmt::format("NCCL could not {}: {}{}{}", doing, ncclGetErrorString(result),
                            detail && *detail ? ": " : "", detail ? detail : ""),
                result);
}

Result<ncclUniqueId> parse_unique_id(const std::string& text) {
  ncclUniqueId id{};
  if (!from_hex(text, id.internal, sizeof id.internal).ok())
    return Status(StatusCode::internal, "the NCCL id that came from rank 0 is not one");
  return id;
}

/// NCCL's communicator and the timeout of its waits. Shared with the communicator from which it was split,
/// and with the thread that aborts it.
struct Link {
  Link(int cuda_device, double seconds) : device(cuda_device), timeout_seconds(seconds) {}

  /// Returns whether NCCL has completed its last request. Relays an asynchronous error.
  Result<bool> settled();
  /// For a call that may continue in NCCL's own thread: waits until the work is in the stream.
  Status settle(ncclResult_t result, const char* doing);
  /// Checks that NCCL may be called, and selects the communicator's device on this thread.
  Status ready() const;
  void interrupt();
  void add_child(const std::shared_ptr<Link>& child);
  /// Appends all communicators that were split from this one.
  void append_family(std::vector<std::shared_ptr<Link>>& family);

  const int device;
  const double timeout_seconds;
  ncclComm_t native = nullptr;  ///< null: one rank, or aborted. NCCL writes it when a split completes
  bool aborted = false;
  std::atomic<bool> interrupted{false};
  std::shared_ptr<Link> unfinished;  ///< a split that started and did not complete; NCCL may still write it

 private:
  std::mutex mutex_;  ///< interrupts come from any thread
  std::vector<std::weak_ptr<Link>> children_;
};

Result<bool> Link::settled() {
  ncclResult_t state = ncclSuccess;
  EGT_TRY(nccl_status(ncclCommGetAsyncError(native, &state), "report its state", native));
  if (state == ncclInProgress) return false;
  EGT_TRY(nccl_status(state, "continue", native));
  return true;
}

Status Link::settle(ncclResult_t result, const char* doing) {
  if (result == ncclSuccess) return {};
  if (result != ncclInProgress) return nccl_status(result, doing, native);
  const auto poll = [this]() -> Result<bool> {
    if (interrupted) return Status(StatusCode::aborted, "the NCCL communicator is aborted");
    return settled();
  };
  return wait_until(poll, {.seconds = timeout_seconds, .what = doing});
}

Status Link::ready() const {
  if (aborted) return Status(StatusCode::aborted, "the NCCL communicator was aborted");
  if (interrupted) return Status(StatusCode::aborted, "the NCCL communicator is aborted");
  return select_cuda_device(device);
}

void Link::append_family(std::vector<std::shared_ptr<Link>>& family) {
  std::vector<std::shared_ptr<Link>> alive;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& child : children_)
      if (auto one = child.lock()) alive.push_back(std::move(one));
  }
  for (const auto& child : alive) {
    family.push_back(child);
    child->append_family(family);
  }
}

void Link::interrupt() {
  interrupted = true;
  std::vector<std::shared_ptr<Link>> family;
  append_family(family);
  for (const auto& one : family) one->interrupted = true;
}

void Link::add_child(const std::shared_ptr<Link>& child) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(children_, [](const auto& one) { return one.expired(); });
    children_.push_back(child);
  }
  if (interrupted) child->interrupted = true;  // applies to a child that was added too late for the list
}

/// Aborts all of them at once, and waits for the aborts together.
void abort_links(const std::vector<std::shared_ptr<Link>>& links, double timeout_seconds) {
  const auto under_way = std::make_shared<std::atomic<int>>(0);
  for (const std::shared_ptr<Link>& link : links) {
    const ncclComm_t native = std::exchange(link->native, nullptr);
    link->aborted = true;
    if (!native) continue;
    ++*under_way;
    // An abort can hang, so it runs on its own thread, which continues after the timeout. The thread owns all
    // that it uses. If no thread can start, the communicator remains until the process ends.
    auto thread = start_thread("NCCL's abort", [native, unfinished = std::exchange(link->unfinished, nullptr),
                                                device = link->device, link, under_way] {
      if (select_cuda_device(device).ok()) {
        static_cast<void>(ncclCommAbort(native));  // also ends a split in progress
        if (unfinished && unfinished->native) static_cast<void>(ncclCommAbort(unfinished->native));
      }
      --*under_way;
    });
    thread.ok() ? thread.value().detach() : static_cast<void>(--*under_way);
  }
  static_cast<void>(wait_until([under_way] { return Result<bool>(under_way->load() == 0); },
                               {.seconds = timeout_seconds, .what = "NCCL's abort"}));
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(int rank, int size, std::shared_ptr<Link> link)
      : rank_(rank), size_(size), link_(std::move(link)) {}
  ~NcclCommunicator() override;

  /// Joins the other ranks. Not for a single rank.
  Status connect(const ncclUniqueId& id);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override;
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override;
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override;
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override;
  Status exchange(std::span<const Message> sends, std::span<const Message> receives, Stream& stream) override;
  Result<std::unique_ptr<Communicator>> split(int group) override;
  Status check() override;
  void interrupt() override { link_->interrupt(); }
  void abort() override;

 private:
  /// NCCL's part of a split. Creates `child->native`, unless `group` is below 0.
  Status split_native(int group, const std::shared_ptr<Link>& child);
  /// The messages between this rank and other ranks, as one NCCL group operation.
  Status exchange_with_others(std::span<const Message> sends, std::span<const Message> receives,
                              Stream& stream);
  ncclResult_t begin_messages(std::span<const Message> sends, std::span<const Message> receives,
                              Stream& stream);

  const int rank_;
  const int size_;
  const std::shared_ptr<Link> link_;
};

ncclConfig_t nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

Status NcclCommunicator::connect(const ncclUniqueId& id) {
  ncclConfig_t config = nonblocking();
  return link_->settle(ncclCommInitRankConfig(&link_->native, size_, id, rank_, &config),
                       "connect the ranks");
}

/// The NCCL type of a reduction.
Result<ncclDataType_t> summed_type(ElementType type) {
  if (type == ElementType::f32) return ncclFloat32;
  if (type == ElementType::bf16) return ncclBfloat16;
  return Status(StatusCode::invalid_argument,
                fmt::format("collectives sum f32 or bf16, not {}", to_string(type)));
}

/// A collective of one rank copies its data.
Status copy_alone(const void* from, void* to, std::size_t bytes, Stream& stream) {
  if (from == to || bytes == 0) return {};
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), "copy memory");
}

Status NcclCommunicator::all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) {
  EGT_TRY_ASSIGN(const ncclDataType_t native_type, summed_type(type));
  EGT_TRY(link_->ready());
  if (size_ == 1) return {};
  return link_->settle(ncclAllReduce(data, data, count, native_type, ncclSum, link_->native, native(stream)),
                       "start an all-reduce");
}

Status NcclCommunicator::broadcast(void* data, std::size_t bytes, int root, Stream& stream) {
  EGT_TRY(link_->ready());
  if (size_ == 1) return {};
  return link_->settle(ncclBroadcast(data, data, bytes, ncclUint8, root, link_->native, native(stream)),
                       "start a broadcast");
}

Status NcclCommunicator::reduce_scatter(const void* send, void* recv, std::size_t recv_count,
                                        ElementType type, Stream& stream) {
  EGT_TRY_ASSIGN(const ncclDataType_t native_type, summed_type(type));
  EGT_TRY(link_->ready());
  if (size_ == 1) return copy_alone(send, recv, recv_count * size_of(type), stream);
  return link_->settle(
      ncclReduceScatter(send, recv, recv_count, native_type, ncclSum, link_->native, native(stream)),
      "start a reduce-scatter");
}

Status NcclCommunicator::all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) {
  EGT_TRY(link_->ready());
  if (size_ == 1) return copy_alone(send, recv, bytes, stream);
  return link_->settle(ncclAllGather(send, recv, bytes, ncclUint8, link_->native, native(stream)),
                       "start an all-gather");
}

/// Skips messages of 0 bytes, since NCCL would require both sides to post them.
ncclResult_t NcclCommunicator::begin_messages(std::span<const Message> sends,
                                              std::span<const Message> receives, Stream& stream) {
  const auto took = [](ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; };
  const auto is_for_nccl = [this](const Message& m) { return m.peer != rank_ && m.bytes > 0; };
  for (const Message& m : sends)
    if (is_for_nccl(m))
      if (const ncclResult_t result =
              ncclSend(m.data, m.bytes, ncclUint8, m.peer, link_->native, native(stream));
          !took(result))
        return result;
  for (const Message& m : receives)
    if (is_for_nccl(m))
      if (const ncclResult_t result =
              ncclRecv(m.data, m.bytes, ncclUint8, m.peer, link_->native, native(stream));
          !took(result))
        return result;
  return ncclSuccess;
}

Status NcclCommunicator::exchange_with_others(std::span<const Message> sends,
                                              std::span<const Message> receives, Stream& stream) {
  constexpr const char* doing = "start an exchange";
  EGT_TRY(nccl_status(ncclGroupStart(), doing));
  const ncclResult_t begun = begin_messages(sends, receives, stream);
  const ncclResult_t ended = ncclGroupEnd();  // also after a failure, since NCCL's group state is per thread
  if (begun != ncclSuccess) return nccl_status(begun, doing, link_->native);
  return link_->settle(ended, doing);
}

Status NcclCommunicator::exchange(std::span<const Message> sends, std::span<const Message> receives,
                                  Stream& stream) {
  EGT_TRY_ASSIGN(const auto own, own_messages(sends, receives, rank_, size_));
  EGT_TRY(link_->ready());
  for (const OwnMessage& message : own) EGT_TRY(copy_alone(message.from, message.to, message.bytes, stream));
  if (size_ == 1) return {};
  return exchange_with_others(sends, receives, stream);
}

Result<std::unique_ptr<Communicator>> NcclCommunicator::split(int group) {
  EGT_TRY(link_->ready());
  const auto child = std::make_shared<Link>(link_->device, link_->timeout_seconds);
  int rank = 0, size = 1;
  if (link_->native) EGT_TRY(split_native(group, child));
  if (group < 0) return std::unique_ptr<Communicator>();
  if (child->native) {
    EGT_TRY(nccl_status(ncclCommUserRank(child->native, &rank), "report the rank", child->native));
    EGT_TRY(nccl_status(ncclCommCount(child->native, &size), "report the number of ranks", child->native));
  }
  link_->add_child(child);
  return std::unique_ptr<Communicator>(new NcclCommunicator(rank, size, child));
}

Status NcclCommunicator::split_native(int group, const std::shared_ptr<Link>& child) {
  // NCCL refuses to split while earlier calls still run in its own thread.
  EGT_TRY(link_->settle(ncclInProgress, "end what came before a split"));
  ncclConfig_t config = nonblocking();
  link_->unfinished = child;
  const ncclResult_t begun =
      ncclCommSplit(link_->native, group < 0 ? NCCL_SPLIT_NOCOLOR : group, rank_, &child->native, &config);
  EGT_TRY(link_->settle(begun, "split the communicator"));
  // Either communicator may still report that it is in progress after the call completed.
  EGT_TRY(link_->settle(ncclInProgress, "split the communicator"));
  if (child->native) EGT_TRY(child->settle(ncclInProgress, "split the communicator"));
  link_->unfinished.reset();
  return {};
}

Status NcclCommunicator::check() {
  EGT_TRY(link_->ready());
  if (!link_->native) return {};
  const Result<bool> state = link_->settled();
  return state.status();
}

void NcclCommunicator::abort() {
  std::vector<std::shared_ptr<Link>> links{link_};
  link_->append_family(links);
  abort_links(links, link_->timeout_seconds);
}

NcclCommunicator::~NcclCommunicator() {
  if (!link_->native || !select_cuda_device(link_->device).ok()) return;
  const Status finalized = link_->settle(ncclCommFinalize(link_->native), "finish the communicator");
  if (finalized.ok())
    static_cast<void>(ncclCommDestroy(std::exchange(link_->native, nullptr)));
  else
    abort_links({link_}, link_->timeout_seconds);
}

}  // namespace

Result<std::string> make_nccl_unique_id() {
  ncclUniqueId id{};
  EGT_TRY(nccl_status(ncclGetUniqueId(&id), "make an id"));
  return to_hex(id.internal, sizeof id.internal);
}

Result<std::unique_ptr<Communicator>> open_nccl_communicator(const std::string& unique_id,
                                                             const RankPlace& place, double timeout_seconds) {
  int device = 0;
  EGT_TRY(cuda_status(cudaGetDevice(&device), "report the current GPU"));
  auto communicator = std::make_unique<NcclCommunicator>(place.rank, place.size,
                                                         std::make_shared<Link>(device, timeout_seconds));
  if (place.size > 1) {
    EGT_TRY_ASSIGN(const ncclUniqueId id, parse_unique_id(unique_id));
    // After an error the destructor would communicate with peers that may not exist.
    if (const Status connected = communicator->connect(id); !connected.ok()) {
      communicator->abort();
      return connected;
    }
  }
  return std::unique_ptr<Communicator>(std::move(communicator));
}

std::string nccl_version() {
  int version = 0;
  if (ncclGetVersion(&version) != ncclSuccess) return {};
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

}  // namespace egt
