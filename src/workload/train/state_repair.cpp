#include "workload/train/state_repair.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "workload/common/findings.hpp"

namespace egt {

namespace {

constexpr std::size_t located_tensors = 8;  // max number, of those that differ
constexpr std::uint64_t pieces = 64;        // parts per range in the search for differences
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
  EGT_TRY(trainer_.keep_state(proven_slot_));
  EGT_TRY_ASSIGN(auto ranks, states(false));
  proven_digests_ = std::move(ranks[static_cast<std::size_t>(environment_.place.rank)]);
  return {};
}

Status StateRepair::keep_candidate(std::int64_t step) {
  candidate_step_ = step;
  return trainer_.keep_state(1 - proven_slot_);
}

void StateRepair::prove_candidate(Answers digests) {
  proven_digests_ = std::move(digests);
  proven_slot_ = 1 - proven_slot_;
  proven_step_ = candidate_step_;
}

Status StateRepair::go_back_to(std::int64_t step) {
  if (candidate_step_ == step && proven_step_ != step) prove_candidate({});
  if (proven_step_ != step)
    return {StatusCode::internal, "the state that all ranks agree on is not kept on this one"};
  steps_.give_up_behind(step);
  return restore();
}

/// Restores the verified state. The copy may have changed since, for example in memory, or the ranks' initial
/// states differed. Then that is a fault, and all ranks return an error, since there is no verified state to
/// continue from.
Status StateRepair::restore() {
  EGT_TRY(steps_.restore(proven_slot_));
  const std::vector<StateTensor> tensors = trainer_.state_tensors();
  const std::size_t count = tensors.size();
  Answers proven = proven_digests_;
  proven.resize(count);
  const auto write = [&](Digest* to) -> Status {
    EGT_TRY(trainer_.enqueue_state_digests(to));
    return exchange_.write(proven, to + count);
  };
  EGT_TRY_ASSIGN(auto held, exchange(write, 2 * count));
  std::vector<Answers> past;
  for (Answers& rank : held) {
    past.emplace_back(rank.begin() + static_cast<std::ptrdiff_t>(count), rank.end());
    rank.resize(count);
  }
  const auto is_known = [](const Answers& rank) { return rank[0] != Digest{}; };
  const auto known = std::find_if(past.begin(), past.end(), is_known);
  if (known == past.end()) return {StatusCode::internal, "no rank knows the digests of the verified state"};
  const Answers right = *known;
  for (Answers& rank : past)
    if (!is_known(rank)) rank = right;
  Status failure;
  const std::string what =
      proven_step_ < 0 ? "the kept initial state" : fmt::format("the kept state of step {}", proven_step_);
  for (const Mismatch& dissent : vote(held, std::vector<int>(held.size(), 0), past)) {
    const std::string how =
        dissent.rank < 0
            ? fmt::format("differs between ranks {}", fmt::join(dissent.suspects, ", "))
            : fmt::format("{} on rank {}", dissent.blame == Blame::certain ? "changed" : "is wrong",
                          dissent.rank);
    failure = {StatusCode::internal,
               fmt::format("{} {}; there is no verified state to continue from", what, how)};
    if (std::max(dissent.rank, 0) != environment_.place.rank) continue;
    Fault fault = fault_of(environment_, "replica", "state digest", "train", proven_step_);
    fault.incident = what;
    fault.blame = dissent.blame;
    if (dissent.rank < 0) {
      fault.rank = -1;
      fault.hostname.clear();
      fault.device_uuid.clear();
      fault.suspects = dissent.suspects;
    }
    fault.where = "kept copy of the " + to_string(tensors[dissent.question]);
    show_difference(fault, dissent.expected, dissent.actual);
    environment_.records.emit(fault);
    EGT_TRY(environment_.publish());
  }
  return failure;
}

Result<std::vector<Answers>> StateRepair::exchange(const std::function<Status(Digest*)>& write,
                                                   std::size_t count) {
  EGT_TRY(write(exchange_.own()));
  EGT_TRY(exchange_.enqueue(count));
  return exchange_.collect(environment_.peer_timeout_seconds, candidate_step_);
}

Result<std::vector<Answers>> StateRepair::states(bool of_second) {
  return exchange([&](Digest* to) { return trainer_.enqueue_state_digests(to, of_second); },
                  trainer_.state_tensors().size());
}

Status StateRepair::enqueue_candidate_digests(Digest* answers) {
  for (const StateTensor& tensor : trainer_.state_tensors())
    EGT_TRY(environment_.device.digest(trainer_.kept_state(1 - proven_slot_, tensor), answers++,
                                       trainer_.communication_stream()));
  return {};
}

Result<std::vector<Answers>> StateRepair::candidates() {
  return exchange([&](Digest* to) { return enqueue_candidate_digests(to); }, trainer_.state_tensors().size());
}

Result<std::vector<StateDifference>> StateRepair::locate(const std::vector<Answers>& states) {
  std::vector<StateDifference> differences;
  for (const std::size_t question : differing_questions(states)) {
    if (differences.size() == located_tensors) break;
    StateDifference& found = differences.emplace_back(StateDifference{.question = question, .words = {}});
    const WordsView whole = trainer_.kept_state(1 - proven_slot_, trainer_.state_tensors()[question]);
    std::size_t blocks = 0;
    EGT_TRY(locate(whole, 0, whole.count, blocks, found.words));
  }
  return differences;
}

/// Depth first, so that the words are found in ascending order.
Status StateRepair::locate(const WordsView& whole, std::uint64_t first, std::uint64_t count,
                           std::size_t& blocks, std::vector<DifferentWord>& found) {
  if (blocks == StateDifference::max_blocks) return {};
  if (count <= StateDifference::block_words) {
    ++blocks;
    const auto copy_words = [&](Digest* to) {
      return environment_.device.copy(to, whole.data + first, count * sizeof(std::uint32_t),
                                      trainer_.communication_stream());
    };
    EGT_TRY_ASSIGN(const auto ranks, exchange(copy_words, (count + words_per_digest - 1) / words_per_digest));
    for (std::uint64_t i = 0; i < count; ++i) {
      DifferentWord word{.index = first + i, .by_rank = {}};
      for (const Answers& rank : ranks) word.by_rank.push_back(word_of(rank, i));
      if (std::count(word.by_rank.begin(), word.by_rank.end(), word.by_rank[0]) != std::ssize(ranks))
        found.push_back(std::move(word));
    }
    return {};
  }
  const std::uint64_t each = (count + pieces - 1) / pieces;
  const auto begin_of = [&](std::uint64_t piece) { return std::min(count, piece * each); };
  const auto digest_pieces = [&](Digest* digests) -> Status {
    for (std::uint64_t i = 0; i < pieces; ++i)
      EGT_TRY(environment_.device.digest({whole.data + first + begin_of(i), begin_of(i + 1) - begin_of(i)},
                                         digests + i, trainer_.communication_stream()));
    return {};
  };
  EGT_TRY_ASSIGN(const auto ranks, exchange(digest_pieces, pieces));
  for (const std::size_t i : differing_questions(ranks))
    EGT_TRY(locate(whole, first + begin_of(i), begin_of(i + 1) - begin_of(i), blocks, found));
  return {};
}

Status StateRepair::drain() {
  const std::int64_t last = steps_.last(), oldest = std::max<std::int64_t>(0, last - MlpTrainer::depth + 1);
  for (std::int64_t step = oldest; step <= last; ++step)
    EGT_TRY(trainer_.retire_step(step, environment_.peer_timeout_seconds).status());
  return {};
}

Result<Repetition> StateRepair::repeat(const std::optional<std::int64_t>& loss_step,
                                       const std::optional<std::int64_t>& pass_step) {
  EGT_TRY(restore());
  const double timeout = environment_.peer_timeout_seconds;
  ProgressBoard::Line& line = environment_.board.line("main");
  Repetition made{.alike = false, .states = {}, .first_step = proven_step_ + 1};
  for (std::int64_t step = made.first_step; step <= candidate_step_; ++step) {
    if (step == loss_step && step > made.first_step) {
      EGT_TRY_ASSIGN(const auto before, states(false));
      made.alike_before_loss = differing_questions(before).empty();
    }
    line.begin("repair: pass", step);
    EGT_TRY(steps_.repeat(step));
    EGT_TRY(trainer_.wait_for_pass(step, timeout));
    line.wait_for_peers("repair: sums");
    EGT_TRY_ASSIGN(const StepResult result, trainer_.retire_step(step, timeout));
    made.losses.push_back(result.loss);
    made.own_losses.push_back(result.own_losses);
    if (const std::vector<int> second_of = steps_.second_of(step); !second_of.empty()) {
      EGT_TRY_ASSIGN(PassDigests passes, trainer_.passes().collect(step, timeout));
      const bool differs = !pass_differences(passes, second_of).empty() || !wrong_sums(passes).empty();
      // After a step that differs now, the weights are not those of the first execution.
      if (step == pass_step && !made.passes_differ) made.passes = std::move(passes);
      made.passes_differ = made.passes_differ || differs;
    }
  }
  EGT_TRY_ASSIGN(const auto ranks, states(false));
  made.states = ranks[0];
  made.alike = differing_questions(ranks).empty();
  if (trainer_.has_second_state()) {
    EGT_TRY_ASSIGN(const auto second, states(true));
    made.alike = differing_questions({ranks[0], second[0]}).empty();
  }
  return made;
}

Status StateRepair::go_on() {
  for (std::int64_t step = candidate_step_ + 1; step <= steps_.last(); ++step) EGT_TRY(steps_.repeat(step));
  return {};
}

void decide_by_repetition(std::vector<Mismatch>& dissents, const std::vector<Answers>& states,
                          const Repetition& repetition,
                          const std::function<std::set<int>(std::size_t)>& blamed) {
  if (dissents.empty() || dissents.back().rank >= 0 || !repetition.alike) return;
  const Mismatch undecided = std::move(dissents.back());
  dissents.pop_back();
  constexpr int no_rank = std::numeric_limits<int>::max();
  std::map<int, Mismatch> by_rank;  // the tensors that stay undecided come last
  for (std::size_t question = undecided.question; question < states[0].size(); ++question) {
    const Digest& right = repetition.states[question];
    const auto answer = [&](int rank) { return states[static_cast<std::size_t>(rank)][question]; };
    const auto& asked = undecided.suspects;
    if (std::all_of(asked.begin(), asked.end(), [&](int rank) { return answer(rank) == answer(asked[0]); }))
      continue;
    std::set<int> wrong;
    for (const int rank : asked)
      if (answer(rank) != right) wrong.insert(rank);
    if (wrong.size() == asked.size()) wrong = blamed(question);
    if (wrong.empty()) wrong = {no_rank};
    for (const int rank : wrong) {
      auto [at, is_new] = by_rank.try_emplace(rank, undecided);
      Mismatch& dissent = at->second;
      if (!is_new) {
        ++dissent.count;
        continue;
      }
      dissent.question = question;
      dissent.count = 1;
      if (rank == no_rank) continue;
      dissent.rank = rank;
      dissent.suspects.clear();
      dissent.blame = Blame::majority;
      dissent.expected = right;
      dissent.actual = answer(rank);
    }
  }
  for (auto& [rank, decided] : by_rank)
    if (std::none_of(dissents.begin(), dissents.end(),
                     [&](const Mismatch& known) { return known.rank == decided.rank; }))
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
  // A word is wrong on this rank unless most ranks hold the same value.
  const auto own = static_cast<std::size_t>(dissent.rank);
  const auto is_its = [&](const DifferentWord& word) {
    const auto alike = std::count(word.by_rank.begin(), word.by_rank.end(), word.by_rank[own]);
    return 2 * static_cast<std::size_t>(alike) <= word.by_rank.size();
  };
  const auto first = std::find_if(words.begin(), words.end(), is_its);
  if (first == words.end()) return;
  const std::uint32_t held = first->by_rank[own];
  const auto right = std::find_if(first->by_rank.begin(), first->by_rank.end(),
                                  [&](std::uint32_t word) { return word != held; });
  show_word(*first, *right, held);
  fault.count = static_cast<std::uint64_t>(std::count_if(first, words.end(), is_its));
}

}  // namespace egt
