#include "egt/ranks/nccl_communicator.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "egt/core/wait.hpp"
#include "egt/device/cuda/cuda_native.hpp"

namespace egt {
namespace {

/// Ok for ncclSuccess, else why `doing` failed, with what NCCL says of it.
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

int hex_digit(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

Result<ncclUniqueId> parse_unique_id(const std::string& text) {
  ncclUniqueId id{};
  bool right = text.size() == 2 * sizeof id.internal;
  for (std::size_t i = 0; right && i < sizeof id.internal; ++i) {
    const int high = hex_digit(text[2 * i]), low = hex_digit(text[2 * i + 1]);
    right = high >= 0 && low >= 0;
    id.internal[i] = static_cast<char>(high * 16 + low);
  }
  if (!right) return Status(StatusCode::internal, "the NCCL id that came from rank 0 is not one");
  return id;
}

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const RankPlace& place, int device, double timeout_seconds)
      : rank_(place.rank), size_(place.size), device_(device), timeout_seconds_(timeout_seconds) {}
  ~NcclCommunicator() override;

  /// Joins the other ranks; not for one rank.
  Status connect(const ncclUniqueId& id);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Status all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) override;
  Status broadcast(void* data, std::size_t bytes, int root, Stream& stream) override;
  Status reduce_scatter(const void* send, void* recv, std::size_t recv_count, ElementType type,
                        Stream& stream) override;
  Status all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) override;
  Status check() override;
  void abort() override;

 private:
  /// Has NCCL come through with what it was asked for? Relays an asynchronous error.
  Result<bool> settled();
  /// A call that may have gone on in NCCL's own thread: waits until the work is in the stream.
  Status settle(ncclResult_t result, const char* doing);
  Status ready();

  const int rank_;
  const int size_;
  const int device_;
  const double timeout_seconds_;
  ncclComm_t communicator_ = nullptr;  // null: one rank, or aborted
  bool aborted_ = false;
};

Status NcclCommunicator::connect(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return settle(ncclCommInitRankConfig(&communicator_, size_, id, rank_, &config), "connect the ranks");
}

Result<bool> NcclCommunicator::settled() {
  ncclResult_t state = ncclSuccess;
  EGT_TRY(nccl_status(ncclCommGetAsyncError(communicator_, &state), "tell its state", communicator_));
  if (state == ncclInProgress) return false;
  EGT_TRY(nccl_status(state, "go on", communicator_));
  return true;
}

Status NcclCommunicator::settle(ncclResult_t result, const char* doing) {
  if (result == ncclSuccess) return {};
  if (result != ncclInProgress) return nccl_status(result, doing, communicator_);
  return wait_until([this] { return settled(); }, {.seconds = timeout_seconds_, .what = doing});
}

Status NcclCommunicator::ready() {
  if (aborted_) return Status(StatusCode::aborted, "the NCCL communicator was aborted");
  return select_cuda_device(device_);
}

/// The native type of what is summed.
Result<ncclDataType_t> summed_type(ElementType type) {
  if (type == ElementType::f32) return ncclFloat32;
  if (type == ElementType::bf16) return ncclBfloat16;
  return Status(StatusCode::invalid_argument,
                fmt::format("collectives sum f32 or bf16, not {}", to_string(type)));
}

/// What a collective of one rank does with its data.
Status copy_alone(const void* from, void* to, std::size_t bytes, Stream& stream) {
  if (from == to || bytes == 0) return {};
  return cuda_status(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), "copy memory");
}

Status NcclCommunicator::all_reduce(void* data, std::size_t count, ElementType type, Stream& stream) {
  EGT_TRY_ASSIGN(const ncclDataType_t native_type, summed_type(type));
  EGT_TRY(ready());
  if (size_ == 1) return {};
  return settle(ncclAllReduce(data, data, count, native_type, ncclSum, communicator_, native(stream)),
                "start an all-reduce");
}

Status NcclCommunicator::broadcast(void* data, std::size_t bytes, int root, Stream& stream) {
  EGT_TRY(ready());
  if (size_ == 1) return {};
  return settle(ncclBroadcast(data, data, bytes, ncclUint8, root, communicator_, native(stream)),
                "start a broadcast");
}

Status NcclCommunicator::reduce_scatter(const void* send, void* recv, std::size_t recv_count,
                                        ElementType type, Stream& stream) {
  EGT_TRY_ASSIGN(const ncclDataType_t native_type, summed_type(type));
  EGT_TRY(ready());
  if (size_ == 1) return copy_alone(send, recv, recv_count * size_of(type), stream);
  return settle(
      ncclReduceScatter(send, recv, recv_count, native_type, ncclSum, communicator_, native(stream)),
      "start a reduce-scatter");
}

Status NcclCommunicator::all_gather(const void* send, void* recv, std::size_t bytes, Stream& stream) {
  EGT_TRY(ready());
  if (size_ == 1) return copy_alone(send, recv, bytes, stream);
  return settle(ncclAllGather(send, recv, bytes, ncclUint8, communicator_, native(stream)),
                "start an all-gather");
}

Status NcclCommunicator::check() {
  EGT_TRY(ready());
  if (!communicator_) return {};
  const Result<bool> state = settled();
  return state.status();
}

void NcclCommunicator::abort() {
  aborted_ = true;
  if (!communicator_) return;
  // An abort can hang itself, so it gets a thread of its own that is left behind if it does. The thread owns
  // all that it touches.
  const auto over = std::make_shared<std::atomic<bool>>(false);
  std::thread([communicator = communicator_, device = device_, over] {
    if (select_cuda_device(device).ok()) static_cast<void>(ncclCommAbort(communicator));
    *over = true;
  }).detach();
  communicator_ = nullptr;
  static_cast<void>(wait_until([over] { return Result<bool>(over->load()); },
                               {.seconds = timeout_seconds_, .what = "NCCL's abort"}));
}

NcclCommunicator::~NcclCommunicator() {
  if (!communicator_ || !select_cuda_device(device_).ok()) return;
  const Status finalized = settle(ncclCommFinalize(communicator_), "finish the communicator");
  if (finalized.ok())
    static_cast<void>(ncclCommDestroy(communicator_));
  else
    NcclCommunicator::abort();
}

}  // namespace

Result<std::string> make_nccl_unique_id() {
  ncclUniqueId id{};
  EGT_TRY(nccl_status(ncclGetUniqueId(&id), "make an id"));
  std::string text;
  for (const char byte : id.internal) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

Result<std::unique_ptr<Communicator>> open_nccl_communicator(const std::string& unique_id,
                                                             const RankPlace& place, double timeout_seconds) {
  int device = 0;
  EGT_TRY(cuda_status(cudaGetDevice(&device), "tell the current GPU"));
  auto communicator = std::make_unique<NcclCommunicator>(place, device, timeout_seconds);
  if (place.size > 1) {
    EGT_TRY_ASSIGN(const ncclUniqueId id, parse_unique_id(unique_id));
    // On an error the destructor would talk to peers that may not be there.
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
