#include "workload/train/state_repair.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "egt/core/math/half.hpp"
#include "workload/common/findings.hpp"
#include "workload/train/all_reduce_check.hpp"

namespace egt {

namespace {

constexpr std::size_t located_tensors = 8;  // max number, of those that differ
constexpr std::uint64_t pieces = 64;        // parts per range in the search for differences
/// Steps after a flip in which gradient all-reduces cannot pull the copies past the right value. With
/// momentum 0.9 and at most 1/20 of the stable learning rate, a disturbance swings to -0.6 of its value in
/// six steps.
constexpr std::int64_t trusted_steps = 5;
/// Min distance of a wrong word from the right value, relative to the nearest rank's word: shortly after the
/// fault, and at any time.
constexpr double clearly = 4, beyond_doubt = 16;
/// Words are exchanged in the buffers of digests: four per digest.
constexpr std::uint64_t words_per_digest = sizeof(Digest) / sizeof(std::uint32_t);

std::uint32_t word_of(const Answers& rank, std::uint64_t index) {
  std::uint32_t word = 0;
  const auto* const bytes = reinterpret_cast<const char*>(rank.data());
  std::memcpy(&word, bytes + index * sizeof word, sizeof word);
  return word;
}

}  // namespace

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
  steps_.give_up_behind(step);
  return steps_.restore(proven_slot_);
}

Result<std::vector<Answers>> StateRepair::exchange(const std::function<Status(Digest*)>& write,
                                                   std::size_t count) {
  EGT_TRY(write(exchange_.own()));
  EGT_TRY(exchange_.enqueue(count));
  return exchange_.collect(environment_.peer_timeout_seconds, candidate_step_);
}

Result<std::vector<Answers>> StateRepair::exchange_words(const WordsView& words) {
  return exchange(
      [&](Digest* to) {
        return environment_.device.copy(to, words.data, words.count * sizeof(std::uint32_t),
                                        trainer_.communication_stream());
      },
      (words.count + words_per_digest - 1) / words_per_digest);
}

Result<std::vector<Answers>> StateRepair::candidates() {
  const std::vector<StateTensor> tensors = trainer_.state_tensors();
  return exchange(
      [&](Digest* to) -> Status {
        for (const StateTensor& tensor : tensors)
          EGT_TRY(environment_.device.digest(trainer_.kept_state(1 - proven_slot_, tensor), to++,
                                             trainer_.communication_stream()));
        return Status();
      },
      tensors.size());
}

Result<std::vector<StateDifference>> StateRepair::locate(const std::vector<Answers>& states) {
  std::vector<StateDifference> differences;
  for (const std::size_t question : unlike(states)) {
    if (differences.size() == located_tensors) break;
    EGT_TRY_ASSIGN(StateDifference difference, locate(question));
    differences.push_back(std::move(difference));
  }
  return differences;
}

Result<StateDifference> StateRepair::locate(std::size_t question) {
  struct Range {
    std::uint64_t first, count;
  };
  const WordsView whole = trainer_.kept_state(1 - proven_slot_, trainer_.state_tensors()[question]);
  StateDifference found{.question = question, .words = {}};
  std::deque<Range> open = {{0, whole.count}};
  for (std::size_t blocks = 0; !open.empty() && blocks < StateDifference::max_blocks;) {
    const Range range = open.front();
    open.pop_front();
    if (range.count <= StateDifference::block_words) {
      EGT_TRY_ASSIGN(const auto ranks, exchange_words({whole.data + range.first, range.count}));
      for (std::uint64_t i = 0; i < range.count; ++i) {
        DifferentWord word{.index = range.first + i, .by_rank = {}};
        for (const Answers& rank : ranks) word.by_rank.push_back(word_of(rank, i));
        if (std::count(word.by_rank.begin(), word.by_rank.end(), word.by_rank[0]) !=
            static_cast<std::ptrdiff_t>(ranks.size()))
          found.words.push_back(std::move(word));
      }
      ++blocks;
      continue;
    }
    const std::uint64_t each = (range.count + pieces - 1) / pieces;
    const auto piece = [&](std::uint64_t i) -> Range {
      const std::uint64_t begin = std::min(range.count, i * each), end = std::min(range.count, begin + each);
      return {range.first + begin, end - begin};
    };
    EGT_TRY_ASSIGN(const auto ranks,
                   exchange(
                       [&](Digest* digests) -> Status {
                         for (std::uint64_t i = 0; i < pieces; ++i)
                           EGT_TRY(environment_.device.digest({whole.data + piece(i).first, piece(i).count},
                                                              digests + i, trainer_.communication_stream()));
                         return Status();
                       },
                       pieces));
    const std::vector<std::size_t> differ = unlike(ranks);
    for (auto i = differ.rbegin(); i != differ.rend(); ++i) open.push_front(piece(*i));
  }
  return found;
}

Status StateRepair::drain() {
  const std::int64_t last = steps_.last(), oldest = std::max<std::int64_t>(0, last - MlpTrainer::depth + 1);
  for (std::int64_t step = oldest; step <= last; ++step)
    EGT_TRY(trainer_.retire_step(step, environment_.peer_timeout_seconds).status());
  return {};
}

Result<Repetition> StateRepair::repeat(std::vector<StateDifference>& differences,
                                       const std::optional<std::int64_t>& loss_step,
                                       const std::optional<std::int64_t>& pass_step) {
  EGT_TRY(steps_.restore(proven_slot_));
  const double timeout = environment_.peer_timeout_seconds;
  ProgressBoard::Line& line = environment_.board.line("main");
  const std::vector<StateTensor> tensors = trainer_.state_tensors();
  const auto states = [&] {
    return exchange([&](Digest* to) { return trainer_.enqueue_state_digests(to); }, tensors.size());
  };
  Repetition made{.alike = false, .states = {}, .first_step = proven_step_ + 1};
  for (std::int64_t step = made.first_step; step <= candidate_step_; ++step) {
    if (step == loss_step && step > made.first_step) {
      EGT_TRY_ASSIGN(const auto before, states());
      made.alike_before_loss = unlike(before).empty();
    }
    line.begin("repair: pass", step);
    EGT_TRY(steps_.repeat(step));
    EGT_TRY(trainer_.wait_for_pass(step, timeout));
    line.wait_for_peers("repair: sums");
    EGT_TRY_ASSIGN(const StepResult result, trainer_.retire_step(step, timeout));
    made.losses.push_back(result.loss);
    made.own_losses.push_back(result.own_losses);
    if (const std::vector<int> second_of = steps_.second_of(step); !second_of.empty()) {
      EGT_TRY_ASSIGN(PassDigests passes, trainer_.pass_digests(step, timeout));
      const bool differs = !pass_differences(passes, second_of).empty() || !wrong_sums(passes).empty();
      // After a step that differs now, the weights are not those of the first execution.
      if (step == pass_step && !made.passes_differ) made.passes = std::move(passes);
      made.passes_differ = made.passes_differ || differs;
    }
  }
  EGT_TRY_ASSIGN(const auto ranks, states());
  made.states = ranks[0];
  made.alike = unlike(ranks).empty();
  if (trainer_.has_second_state()) {
    EGT_TRY_ASSIGN(
        const auto second,
        exchange([&](Digest* to) { return trainer_.enqueue_second_state_digests(to); }, tensors.size()));
    made.alike = unlike({ranks[0], second[0]}).empty();
  }
  for (StateDifference& difference : differences) {
    const WordsView words = trainer_.state(tensors[difference.question]);
    for (auto word = difference.words.begin(); word != difference.words.end();) {
      const std::uint64_t first = word->index,
                          count = std::min(StateDifference::block_words, words.count - first);
      EGT_TRY_ASSIGN(const auto block, exchange_words({words.data + first, count}));
      for (; word != difference.words.end() && word->index < first + count; ++word)
        word->repeated = word_of(block[0], word->index - first);
    }
  }
  return made;
}

Status StateRepair::go_on() {
  for (std::int64_t step = candidate_step_ + 1; step <= steps_.last(); ++step) EGT_TRY(steps_.repeat(step));
  return {};
}

std::vector<int> furthest_from(std::uint32_t repeated, const std::vector<std::uint32_t>& by_rank,
                               double times) {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<double> distances;
  for (const std::uint32_t word : by_rank) {
    const double distance = std::abs(double{float_from_bits(word)} - double{float_from_bits(repeated)});
    distances.push_back(word == repeated ? 0 : std::isfinite(distance) ? distance : never);
  }
  const double nearest = distances.empty() ? never : *std::min_element(distances.begin(), distances.end());
  std::vector<int> found;
  for (std::size_t rank = 0; rank < distances.size(); ++rank)
    if (nearest < never && distances[rank] > times * nearest) found.push_back(static_cast<int>(rank));
  return found;
}

namespace {

/// Faulty ranks and suspects of one tensor.
struct Decision {
  std::set<int> wrong, suspects;
};

/// Ranks that the words of a tensor contradict.
std::set<int> contradicted(const StateDifference& difference, double times) {
  std::set<int> ranks;
  for (const DifferentWord& word : difference.words)
    for (const int rank : furthest_from(word.repeated, word.by_rank, times)) ranks.insert(rank);
  return ranks;
}

Decision decide(std::size_t question, const std::vector<Answers>& states,
                const std::vector<StateDifference>& differences, const Repetition& repetition,
                const Deviation& deviation, std::int64_t candidate_step) {
  Decision made;
  for (std::size_t rank = 0; rank < states.size(); ++rank)
    if (states[rank][question] != repetition.states[question]) made.wrong.insert(static_cast<int>(rank));
  if (made.wrong.size() < states.size()) return made;
  made.wrong.clear();
  std::set<int> of_all;
  for (const StateDifference& difference : differences) {
    const std::set<int> ranks = contradicted(difference, clearly);
    of_all.insert(ranks.begin(), ranks.end());
    if (difference.question != question) continue;
    made.wrong = ranks;
    if (const std::set<int> sure = contradicted(difference, beyond_doubt); !sure.empty())
      return {.wrong = sure, .suspects = {}};
  }
  const bool recent = deviation.ranks.empty() || candidate_step - deviation.step < trusted_steps;
  if (recent && !made.wrong.empty()) return made;
  if (deviation.ranks.size() != 1 || !deviation.clear) return {};
  const int first = *deviation.ranks.begin();
  const bool others = !made.wrong.empty() && made.wrong != std::set<int>{first};
  if (!others || !of_all.contains(first)) return {.wrong = {first}, .suspects = {}};
  made.suspects = std::exchange(made.wrong, {});
  made.suspects.insert(first);
  return made;
}

}  // namespace

std::vector<Mismatch> decide_by_repetition(const Mismatch& undecided, const std::vector<Answers>& states,
                                           const std::vector<StateDifference>& differences,
                                           const Repetition& repetition, const Deviation& deviation,
                                           std::int64_t candidate_step) {
  std::map<int, Mismatch> by_rank;
  std::optional<Mismatch> left;
  for (std::size_t question = undecided.question; question < states[0].size(); ++question) {
    const auto& asked = undecided.suspects;
    const auto answer = [&](int rank) { return states[static_cast<std::size_t>(rank)][question]; };
    if (std::all_of(asked.begin(), asked.end(), [&](int rank) { return answer(rank) == answer(asked[0]); }))
      continue;
    const Decision decision = decide(question, states, differences, repetition, deviation, candidate_step);
    for (const int rank : decision.wrong) {
      auto [at, is_new] = by_rank.try_emplace(rank, Mismatch{.question = question,
                                                             .rank = rank,
                                                             .suspects = {},
                                                             .blame = Blame::majority,
                                                             .expected = repetition.states[question],
                                                             .actual = answer(rank),
                                                             .count = 1});
      if (!is_new) ++at->second.count;
    }
    if (!decision.wrong.empty()) continue;
    if (left) {
      ++left->count;
      continue;
    }
    left = undecided;
    left->question = question;
    left->count = 1;
    if (!decision.suspects.empty()) left->suspects.assign(decision.suspects.begin(), decision.suspects.end());
  }
  std::vector<Mismatch> decided;
  for (auto& [rank, dissent] : by_rank) decided.push_back(std::move(dissent));
  if (left) decided.push_back(std::move(*left));
  return decided;
}

void decide_by_repetition(std::vector<Mismatch>& dissents, const std::vector<Answers>& states,
                          const std::vector<StateDifference>& differences, const Repetition& repetition,
                          const std::optional<Deviation>& deviation, std::int64_t candidate_step) {
  if (dissents.empty() || dissents.back().rank >= 0 || !repetition.alike) return;
  const Mismatch undecided = std::move(dissents.back());
  dissents.pop_back();
  const Deviation nothing_known{.step = repetition.first_step,
                                .ranks = {undecided.suspects.begin(), undecided.suspects.end()}};
  for (Mismatch& decided : decide_by_repetition(undecided, states, differences, repetition,
                                                deviation.value_or(nothing_known), candidate_step))
    if (std::none_of(dissents.begin(), dissents.end(),
                     [&](const Mismatch& known) { return decided.rank >= 0 && known.rank == decided.rank; }))
      dissents.push_back(std::move(decided));
}

void show_state(Fault& fault, const Mismatch& dissent, const std::string& tensor,
                const std::vector<StateDifference>& differences) {
  fault.where = tensor + more_tensors(dissent.count);
  show_difference(fault, dissent.expected, dissent.actual);
  const auto located = std::find_if(differences.begin(), differences.end(),
                                    [&](const auto& one) { return one.question == dissent.question; });
  if (located == differences.end() || located->words.empty()) return;
  const std::vector<DifferentWord>& words = located->words;
  const auto show_word = [&](const DifferentWord& word, std::uint32_t expected, std::uint32_t actual) {
    fault.where = fmt::format("{}, element {}{}", tensor, word.index, more_tensors(dissent.count));
    fault.offset = word.index * sizeof(float);
    show_difference(fault, expected, actual);
  };
  if (dissent.rank < 0) {
    const std::vector<std::uint32_t>& by_rank = words.front().by_rank;
    show_word(words.front(), by_rank[static_cast<std::size_t>(dissent.suspects.front())],
              by_rank[static_cast<std::size_t>(dissent.suspects.back())]);
    fault.count = words.size();
    return;
  }
  // A word is wrong on this rank if most ranks hold another value. If that is inconclusive, the word further
  // from the repetition's is.
  const auto own = static_cast<std::size_t>(dissent.rank);
  const auto is_its = [&](const DifferentWord& word) {
    const auto alike = std::count(word.by_rank.begin(), word.by_rank.end(), word.by_rank[own]);
    const auto furthest = furthest_from(word.repeated, word.by_rank);
    return 2 * static_cast<std::size_t>(alike) < word.by_rank.size() || furthest.empty() ||
           std::count(furthest.begin(), furthest.end(), dissent.rank) > 0;
  };
  const auto first = std::find_if(words.begin(), words.end(), is_its);
  if (first == words.end()) return;
  const std::uint32_t held = first->by_rank[own];
  const auto right = std::find_if(first->by_rank.begin(), first->by_rank.end(),
                                  [&](std::uint32_t word) { return word != held; });
  show_word(*first, right != first->by_rank.end() ? *right : first->repeated, held);
  fault.count = static_cast<std::uint64_t>(std::count_if(first, words.end(), is_its));
}

}  // namespace egt
