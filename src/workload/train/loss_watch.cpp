#include "workload/train/loss_watch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "workload/common/findings.hpp"

namespace egt {

namespace {

constexpr float far_apart = 10;

/// The rank whose loss is far above all other ones, which are finite.
std::optional<int> rank_apart(const std::vector<float>& losses) {
  const auto size = [](float loss) {
    return std::isfinite(loss) ? std::abs(loss) : std::numeric_limits<float>::infinity();
  };
  const auto is_smaller = [&](float a, float b) { return size(a) < size(b); };
  const auto most = std::max_element(losses.begin(), losses.end(), is_smaller);
  for (auto other = losses.begin(); other != losses.end(); ++other)
    if (other != most && !(size(*other) * far_apart <= size(*most) && std::isfinite(*other)))
      return std::nullopt;
  return static_cast<int>(most - losses.begin());
}

}  // namespace

std::optional<LossApart> first_loss_apart(const Repetition& repetition, std::int64_t last) {
  std::int64_t step = repetition.first_step;
  for (const std::vector<float>& losses : repetition.own_losses) {
    if (step > last || losses.size() < 2) break;
    if (const auto rank = rank_apart(losses)) return LossApart{.rank = *rank, .step = step};
    ++step;
  }
  return std::nullopt;
}

void LossWatch::note(std::int64_t step, const StepResult& result) {
  const bool was_finite = std::exchange(is_finite_, std::isfinite(result.loss));
  if (is_finite_ || !was_finite || diverges_) return;
  open_ = {.step = step, .ranks = {}};
  for (std::size_t rank = 0; rank < result.own_losses.size(); ++rank)
    if (!std::isfinite(result.own_losses[rank])) open_->ranks.push_back(static_cast<int>(rank));
}

std::optional<std::int64_t> LossWatch::open_step() const {
  return open_ ? std::optional(open_->step) : std::nullopt;
}

LossWatch::Figures LossWatch::figures() const {
  Figures figures = figures_;
  if (open_) figures.unexamined_step = open_->step;
  return figures;
}

bool LossWatch::judge(const Repetition& repetition, bool explained, std::uint64_t check) {
  const std::vector<double>& losses = repetition.losses;
  if (!losses.empty()) is_finite_ = std::isfinite(losses.back());
  const std::optional<Nonfinite> open = std::exchange(open_, std::nullopt);
  if (!open || explained) return false;
  const std::int64_t index = open->step - repetition.first_step;
  if (index < 0 || index >= static_cast<std::int64_t>(losses.size())) {
    figures_.unexamined_step = open->step;
    return false;
  }
  if (std::isfinite(losses[static_cast<std::size_t>(index)]) || !repetition.alike_before_loss) {
    report(*open, check);
    return true;
  }
  diverges_ = true;
  if (!figures_.diverged_step) {
    figures_.diverged_step = open->step;
    figures_.diverged_first = first_loss_apart(repetition, open->step);
  }
  return false;
}

void LossWatch::give_up() {
  figures_ = figures();
  open_.reset();
  is_finite_ = true;
  diverges_ = false;
}

void LossWatch::report(const Nonfinite& loss, std::uint64_t check) {
  Mismatch dissent;
  dissent.suspects = loss.ranks;
  if (dissent.suspects.size() == 1) dissent.rank = dissent.suspects.front();
  if (environment_.place.size > 1 && dissent.suspects.empty())
    dissent.suspects.push_back(0);  // all parts are finite, but their sum is not
  dissent.blame = dissent.rank >= 0 ? Blame::certain : Blame::ambiguous;
  Fault fault = fault_of(environment_, "nonfinite", "loss", "train", loss.step);
  fault.incident = fmt::format("nonfinite in check {}", check);
  fault.where = "the loss";
  fault.expected = "finite";
  fault.actual = "NaN or infinity";
  reporter_.report(std::move(fault), dissent);
}

}  // namespace egt
