#include "loadtest/load_checks.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"

namespace egt {
namespace {

constexpr std::size_t max_answers = 256;  // per test, in both rounds

std::vector<Answers> of_questions(const std::vector<Answers>& ranks,
                                  const std::vector<std::size_t>& questions, std::size_t first) {
  std::vector<Answers> chosen;
  for (const Answers& rank : ranks) {
    Answers& own = chosen.emplace_back();
    for (const std::size_t question : questions) own.push_back(rank[first + question]);
  }
  return chosen;
}

}  // namespace

Status LoadChecks::prepare() {
  Device& device = environment_.device;
  EGT_TRY_ASSIGN(stream_, device.create_stream(StreamPriority::high, StreamUse::without_products));
  EGT_TRY_ASSIGN(made_, device.create_event(EventUse::order));
  exchange_ = std::make_unique<DigestExchange>(device, environment_.communicator, *stream_,
                                               &environment_.board.line("main"));
  EGT_TRY(exchange_->prepare(max_answers));
  EGT_TRY_ASSIGN(groups_, exchange_->groups_of(environment_.device_model, environment_.peer_timeout_seconds));
  return {};
}

Status LoadChecks::begin(const LoadJob& job, const std::string& name) {
  name_ = name;
  answers_ = job.answers();
  past_.clear();
  found_ = false;
  if (2 * answers_.size() <= max_answers) return {};
  return {StatusCode::internal,
          fmt::format("{}: {} answers, more than there is memory for", name, answers_.size())};
}

Status LoadChecks::check(LoadJob& job, std::int64_t step, const std::function<Status()>& between) {
  Device& device = environment_.device;
  const std::size_t count = answers_.size();
  EGT_TRY(job.enqueue_answers(exchange_->own(), 0));
  if (between) EGT_TRY(between());
  EGT_TRY(job.enqueue_answers(exchange_->own() + count, 1));
  EGT_TRY(device.record(*made_, job.stream()));
  EGT_TRY(device.wait(*stream_, *made_));
  EGT_TRY(exchange_->enqueue(2 * count));
  EGT_TRY_ASSIGN(const auto all, exchange_->collect(environment_.peer_timeout_seconds, step));
  if (judge_rounds(all, of_kind(LoadAnswerKind::state), step))
    judge_rounds(all, of_kind(LoadAnswerKind::derived), step);
  const Questions replays = of_kind(LoadAnswerKind::replay);
  for (const std::size_t first : {std::size_t{0}, count})
    judge(of_questions(all, replays, first), replays, "replay", step, past_);
  reporter_.end_check();
  return {};
}

LoadChecks::Questions LoadChecks::of_kind(LoadAnswerKind kind) const {
  Questions questions;
  for (std::size_t i = 0; i < answers_.size(); ++i)
    if (answers_[i].kind == kind) questions.push_back(i);
  return questions;
}

/// A round in which all ranks agree, preferably the first, is the reference for the other. The second one
/// needs half of the ranks or more with equal answers in both rounds. Otherwise a faulty rank may have passed
/// wrong values to all through shared results. The second round then blames no rank.
bool LoadChecks::judge_rounds(const std::vector<Answers>& all, const Questions& questions,
                              std::int64_t step) {
  if (questions.empty()) return true;
  std::vector<Answers> first = of_questions(all, questions, 0);
  std::vector<Answers> second = of_questions(all, questions, answers_.size());
  const bool is_state = answers_[questions.front()].kind == LoadAnswerKind::state;
  const std::vector<Answers> none(all.size());
  const bool only_second_agrees = !vote(first, groups_, none).empty() && vote(second, groups_, none).empty();
  std::size_t confirmed = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) confirmed += first[rank] == second[rank] ? 1 : 0;
  const bool turned = only_second_agrees && 2 * confirmed >= all.size();
  if (turned) std::swap(first, second);
  const char* const kind = is_state && !turned ? "replica" : "replay";
  std::vector<Answers> past;
  const bool is_right = judge(first, questions, kind, step, past);
  if (only_second_agrees && !turned) return false;
  return judge(second, questions, kind, step, past) && is_right;
}

bool LoadChecks::judge(const std::vector<Answers>& answers, const Questions& questions, const char* kind,
                       std::int64_t step, std::vector<Answers>& past) {
  if (questions.empty()) return true;
  past.resize(answers.size());
  const std::vector<Mismatch> dissents = vote(answers, groups_, past);
  remember(past, answers, dissents);
  const int own = environment_.place.rank;
  bool own_is_right = true;
  for (const Mismatch& dissent : dissents) {
    found_ = true;
    const auto& suspects = dissent.suspects;
    if (dissent.rank == own || std::find(suspects.begin(), suspects.end(), own) != suspects.end())
      own_is_right = false;
    if (reporter_.found(kind, dissent)) continue;  // in the other round
    Fault fault = fault_of(environment_, kind, "load test digest", name_, step);
    fault.where =
        fmt::format("{}{}", answers_[questions[dissent.question]].name, more_tensors(dissent.count));
    show_difference(fault, dissent.expected, dissent.actual);
    reporter_.report(std::move(fault), dissent);
  }
  if (own_is_right) {
    (answers_[questions.front()].kind == LoadAnswerKind::replay ? work_.replays : work_.replica_checks) += 1;
    work_.outputs_verified += questions.size();
  }
  return dissents.empty();
}

Status LoadChecks::give_up(double timeout_seconds) {
  EGT_TRY(environment_.device.forget_failure(*stream_, timeout_seconds));
  given_up_.push_back(std::move(exchange_));
  return {};
}

}  // namespace egt
