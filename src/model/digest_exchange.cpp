#include "model/digest_exchange.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "egt/core/wait.hpp"

namespace egt {

namespace {

Status too_many() {
  return {StatusCode::internal, "more digests than there is memory for"};
}

}  // namespace

Status wait_with_peers(Device& device, Communicator& communicator, const Event& event, double seconds,
                       const char* what) {
  return wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(communicator.check());
        return device.done(event);
      },
      {.seconds = seconds, .what = what});
}

Status DigestExchange::prepare(std::size_t most) {
  most_ = most + 1;  // and the stamp
  EGT_TRY_ASSIGN(memory_, device_.allocate(most_ * (ranks() + 1) * sizeof(Digest)));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(most_ * (ranks() + 1) * sizeof(Digest)));
  EGT_TRY_ASSIGN(own_done_, device_.create_event(EventUse::order));
  EGT_TRY_ASSIGN(done_, device_.create_event(EventUse::order));
  return {};
}

Status DigestExchange::write(const Answers& digests, Digest* to) {
  if (digests.size() >= most_) return too_many();
  Digest* const from = pinned_.as<Digest>() + most_ * ranks();
  std::copy(digests.begin(), digests.end(), from);
  return device_.copy(to, from, digests.size() * sizeof(Digest), stream_);
}

Status DigestExchange::write_stamp(Digest* digest, std::uint32_t number) {
  constexpr std::uint64_t words = sizeof(Digest) / sizeof(std::uint32_t);
  return device_.fill({reinterpret_cast<std::uint32_t*>(digest), words},
                      {.kind = PatternKind::solid, .parameter = number}, stream_);
}

Status DigestExchange::enqueue(std::size_t count) {
  if (count >= most_) return too_many();
  count_ = count + 1;
  Digest* const all = own() + most_;
  EGT_TRY(write_stamp(own() + count, ++number_));
  if (line_ != nullptr) EGT_TRY(device_.record(*own_done_, stream_));
  EGT_TRY(communicator_.all_gather(own(), all, count_ * sizeof(Digest), stream_));
  EGT_TRY(device_.copy(pinned_.data(), all, count_ * ranks() * sizeof(Digest), stream_));
  return device_.record(*done_, stream_);
}

Result<std::vector<Answers>> DigestExchange::collect(double timeout_seconds, std::int64_t step) const {
  constexpr const char* what = "the digests of all ranks";
  if (line_ != nullptr) {
    line_->begin("checks: own digests", step);
    EGT_TRY(wait_with_peers(device_, communicator_, *own_done_, timeout_seconds, what));
    line_->wait_for_peers("checks: digests of all ranks");
  }
  EGT_TRY(wait_with_peers(device_, communicator_, *done_, timeout_seconds, what));
  const Digest* digests = pinned_.as<Digest>();
  if (digests[(static_cast<std::size_t>(communicator_.rank()) + 1) * count_ - 1] != stamp(number_))
    return Status(StatusCode::internal, "the digests of all ranks are not those of the last exchange");
  std::vector<Answers> answers;
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    answers.emplace_back(digests + rank * count_, digests + (rank + 1) * count_ - 1);
  return answers;
}

Result<std::vector<Answers>> DigestExchange::exchange(const Answers& digests, double timeout_seconds) {
  EGT_TRY(write(digests, own()));
  EGT_TRY(enqueue(digests.size()));
  return collect(timeout_seconds);
}

Result<std::vector<int>> DigestExchange::groups_of(const std::string& text, double timeout_seconds) {
  EGT_TRY_ASSIGN(const auto ranks, exchange({digest_of(text)}, timeout_seconds));
  std::vector<int> groups;
  for (const Answers& rank : ranks)
    groups.push_back(static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()));
  // A rank with other groups than its peers would compare different batches, and healthy ranks be blamed.
  EGT_TRY_ASSIGN(const auto same,
                 exchange({digest_of(fmt::format("{}", fmt::join(groups, " ")))}, timeout_seconds));
  if (std::count(same.begin(), same.end(), same[0]) != std::ssize(same))
    return Status(StatusCode::internal, "the ranks do not agree on the groups of equal devices");
  return groups;
}

}  // namespace egt
