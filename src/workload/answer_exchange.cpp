#include "egt/workload/answer_exchange.hpp"

#include "egt/core/wait.hpp"

namespace egt {

Status AnswerExchange::prepare(std::size_t most) {
  most_ = most;
  EGT_TRY_ASSIGN(memory_, device_.allocate(most * (ranks() + 1) * sizeof(Digest)));
  EGT_TRY_ASSIGN(pinned_, device_.allocate_pinned(most * ranks() * sizeof(Digest)));
  EGT_TRY_ASSIGN(own_done_, device_.create_event());
  EGT_TRY_ASSIGN(done_, device_.create_event());
  return {};
}

Status AnswerExchange::enqueue(std::size_t count) {
  if (count > most_) return {StatusCode::internal, "more digests than there is memory for"};
  count_ = count;
  Digest* const all = own() + most_;
  EGT_TRY(device_.record(*own_done_, stream_));
  EGT_TRY(communicator_.all_gather(own(), all, count * sizeof(Digest), stream_));
  EGT_TRY(device_.copy(pinned_.data(), all, count * ranks() * sizeof(Digest), stream_));
  return device_.record(*done_, stream_);
}

Status AnswerExchange::wait(const Event& event, double timeout_seconds) {
  return wait_until(
      [&]() -> Result<bool> {
        EGT_TRY(communicator_.check());
        return device_.done(event);
      },
      {.seconds = timeout_seconds, .what = "the digests of all ranks"});
}

Result<std::vector<Answers>> AnswerExchange::collect(double timeout_seconds, std::int64_t step) {
  line_.begin("checks: own digests", step);
  EGT_TRY(wait(*own_done_, timeout_seconds));
  line_.wait_for_peers("checks: digests of all ranks");
  EGT_TRY(wait(*done_, timeout_seconds));
  const Digest* digests = pinned_.as<Digest>();
  std::vector<Answers> answers;
  for (std::size_t rank = 0; rank < ranks(); ++rank)
    answers.emplace_back(digests + rank * count_, digests + (rank + 1) * count_);
  return answers;
}

}  // namespace egt
