#include "egt/workload/state_repair.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "egt/core/half.hpp"

namespace egt {

namespace {

constexpr std::uint64_t pieces = 64;  // that a range is cut into to find the first that differs

bool all_alike(const std::vector<Answers>& ranks, std::size_t question) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](const Answers& rank) { return rank[question] == ranks[0][question]; });
}

/// Words travel in digests' places: four a digest.
constexpr std::uint64_t words_per_digest = sizeof(Digest) / sizeof(std::uint32_t);

std::uint32_t word_of(const Answers& rank, std::uint64_t index) {
  return reinterpret_cast<const std::uint32_t*>(rank.data())[index];
}

}  // namespace

StateRepair::StateRepair(Device& device, MlpTrainer& trainer, AnswerExchange& exchange, RepeatStep repeat)
    : device_(device), trainer_(trainer), exchange_(exchange), repeat_(std::move(repeat)) {}

Status StateRepair::begin() {
  return trainer_.keep_state(proven_slot_);
}

Status StateRepair::keep_candidate(std::int64_t step) {
  candidate_step_ = step;
  return trainer_.keep_state(1 - proven_slot_);
}

void StateRepair::prove_candidate() {
  proven_slot_ = 1 - proven_slot_;
  proven_step_ = candidate_step_;
}

Status StateRepair::go_back_to(std::int64_t step) {
  if (candidate_step_ == step && proven_step_ != step) prove_candidate();
  if (proven_step_ != step)
    return {StatusCode::internal, "the state that all ranks agree on is not kept on this one"};
  return trainer_.restore_state(proven_slot_);
}

Result<std::vector<Answers>> StateRepair::exchange(const std::function<Status(Digest*)>& write,
                                                   std::size_t count, double timeout_seconds) {
  EGT_TRY(write(exchange_.own()));
  EGT_TRY(exchange_.enqueue(count));
  return exchange_.collect(timeout_seconds);
}

Result<StateDifference> StateRepair::locate(const StateTensor& tensor, double timeout_seconds) {
  const WordsView whole = trainer_.kept_state(1 - proven_slot_, tensor);
  Stream& stream = trainer_.communication_stream();
  std::uint64_t first = 0, count = whole.count;
  while (count > StateDifference::block_words) {
    const std::uint64_t each = (count + pieces - 1) / pieces;
    EGT_TRY_ASSIGN(
        const auto ranks,
        exchange(
            [&](Digest* digests) -> Status {
              for (std::uint64_t i = 0; i < pieces; ++i) {
                const std::uint64_t begin = std::min(count, i * each), end = std::min(count, begin + each);
                EGT_TRY(device_.digest({whole.data + first + begin, end - begin}, digests + i, stream));
              }
              return Status();
            },
            pieces, timeout_seconds));
    std::uint64_t piece = 0;
    while (piece < pieces && all_alike(ranks, piece)) ++piece;
    if (piece == pieces) return StateDifference{};
    first += piece * each;
    count = std::min(each, count - piece * each);
  }
  const std::size_t digests = (count + words_per_digest - 1) / words_per_digest;
  EGT_TRY_ASSIGN(const auto ranks, exchange(
                                       [&](Digest* to) {
                                         return device_.copy(to, whole.data + first,
                                                             count * sizeof(std::uint32_t), stream);
                                       },
                                       digests, timeout_seconds));
  StateDifference found;
  found.tensor = tensor;
  for (std::uint64_t i = 0; i < count; ++i) {
    const bool alike = std::all_of(ranks.begin(), ranks.end(), [&](const Answers& rank) {
      return word_of(rank, i) == word_of(ranks[0], i);
    });
    if (alike || found.count++ > 0) continue;
    found.word = first + i;
    for (const Answers& rank : ranks) found.by_rank.push_back(word_of(rank, i));
  }
  return found;
}

/// Waits for the steps that are under way; they are retired once more when they were repeated.
Status StateRepair::drain(std::int64_t last, double timeout_seconds) {
  const std::int64_t oldest = std::max<std::int64_t>(0, last - MlpTrainer::depth + 1);
  for (std::int64_t step = oldest; step <= last; ++step)
    EGT_TRY(trainer_.retire_step(step, timeout_seconds).status());
  return {};
}

Result<std::optional<std::uint32_t>> StateRepair::repeat(const StateTensor& tensor, std::uint64_t word,
                                                         std::int64_t last, double timeout_seconds) {
  EGT_TRY(drain(last, timeout_seconds));
  EGT_TRY(trainer_.restore_state(proven_slot_));
  for (std::int64_t step = proven_step_ + 1; step <= candidate_step_; ++step) {
    EGT_TRY(repeat_(step));
    EGT_TRY(trainer_.retire_step(step, timeout_seconds).status());
  }
  const WordsView words = trainer_.state(tensor);
  const std::size_t states = trainer_.state_tensors().size();
  EGT_TRY_ASSIGN(const auto ranks, exchange(
                                       [&](Digest* to) -> Status {
                                         EGT_TRY(trainer_.enqueue_state_digests(to));
                                         return device_.copy(to + states, words.data + word,
                                                             sizeof(std::uint32_t),
                                                             trainer_.communication_stream());
                                       },
                                       states + 1, timeout_seconds));
  for (std::int64_t step = candidate_step_ + 1; step <= last; ++step) EGT_TRY(repeat_(step));
  for (std::size_t q = 0; q < states; ++q)
    if (!all_alike(ranks, q)) return std::optional<std::uint32_t>();
  return std::optional(word_of(ranks[0], states * words_per_digest));
}

std::vector<int> furthest_from(std::uint32_t repeated, const std::vector<std::uint32_t>& by_rank) {
  constexpr double clearly = 4;
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<double> distances;
  for (const std::uint32_t word : by_rank) {
    const double distance = std::abs(double{float_from_bits(word)} - double{float_from_bits(repeated)});
    distances.push_back(word == repeated ? 0 : std::isfinite(distance) ? distance : never);
  }
  const double nearest = distances.empty() ? never : *std::min_element(distances.begin(), distances.end());
  std::vector<int> found;
  for (std::size_t rank = 0; rank < distances.size(); ++rank)
    if (nearest < never && distances[rank] > clearly * nearest) found.push_back(static_cast<int>(rank));
  return found;
}

}  // namespace egt
