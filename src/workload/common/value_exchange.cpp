#include "workload/common/value_exchange.hpp"

#include <algorithm>
#include <utility>

namespace egt {

Status ValueExchange::prepare(std::size_t most) {
  most_ = most;
  const std::size_t bytes = most * (ranks() + 1) * sizeof(double);
  EGT_TRY_ASSIGN(memory_, device_.allocate(bytes));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(bytes));
  EGT_TRY_ASSIGN(done_, device_.create_event(EventUse::order));
  EGT_TRY_ASSIGN(stream_, device_.create_stream(StreamPriority::normal, StreamUse::without_products));
  return {};
}

Result<std::vector<double>> ValueExchange::all(std::span<const double> own, std::int64_t step,
                                               const char* phase) {
  if (own.size() > most_)
    return Status(StatusCode::internal, "more figures of a rank than there is memory for");
  const std::size_t bytes = own.size_bytes();
  double *const host = pinned_.as<double>(), *const memory = memory_.as<double>();
  std::copy(own.begin(), own.end(), host);
  EGT_TRY(device_.copy(memory, host, bytes, *stream_));
  EGT_TRY(communicator_.all_gather(memory, memory + most_, bytes, *stream_));
  EGT_TRY(device_.copy(host + most_, memory + most_, bytes * ranks(), *stream_));
  EGT_TRY(device_.record(*done_, *stream_));
  line_.begin(phase, step);
  line_.wait_for_peers(phase);
  EGT_TRY(wait_with_peers(device_, communicator_, *done_, timeout_seconds_, phase));
  line_.go_on(phase);
  const double* const gathered = host + most_;
  return std::vector<double>(gathered, gathered + own.size() * ranks());
}

Status ValueExchange::recover(double seconds) {
  EGT_TRY(device_.forget_failure(*stream_, seconds));
  const std::size_t bytes = memory_.bytes();
  given_up_.push_back(std::move(memory_));
  EGT_TRY_ASSIGN(memory_, device_.allocate(bytes));
  return {};
}

}  // namespace egt
