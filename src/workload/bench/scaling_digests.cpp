#include "workload/bench/scaling_digests.hpp"

#include <bit>
#include <cstddef>
#include <utility>

#include "workload/bench/bench_operation.hpp"

namespace egt {

std::size_t answers_of(BenchWorkload workload) {
  switch (workload) {
    case BenchWorkload::mlp:
      return 1;
    case BenchWorkload::multimodal:
      return multimodal_outputs * BenchOperation::generations;
    case BenchWorkload::voxelize:
      return voxelize_outputs * BenchOperation::generations;
  }
  return 0;
}

std::vector<double> to_figures(const Answers& answers) {
  std::vector<double> figures;
  for (const Digest& digest : answers)
    for (const std::uint64_t half : {digest.a, digest.b}) figures.push_back(std::bit_cast<double>(half));
  return figures;
}

Answers from_figures(const double* figures, std::size_t count) {
  Answers answers;
  for (const double* at = figures; at != figures + 2 * count; at += 2)
    answers.push_back({std::bit_cast<std::uint64_t>(at[0]), std::bit_cast<std::uint64_t>(at[1])});
  return answers;
}

std::vector<Mismatch> BenchAnswers::judge(const std::string& test, const std::vector<std::int64_t>& sizes,
                                          const std::vector<Answers>& now) {
  const std::size_t ranks = models_.size();
  const auto known = [&](std::size_t rank) -> Answers& {
    return past_[{test, sizes[rank], static_cast<int>(rank)}];
  };
  std::vector<Answers> answers = now, past;
  std::vector<int> groups(ranks);
  std::map<std::pair<int, std::int64_t>, int> group_of;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    past.push_back(known(rank));
    if (answers[rank].empty()) answers[rank] = past[rank];
    const auto next = static_cast<int>(group_of.size());
    groups[rank] = group_of.try_emplace({models_[rank], sizes[rank]}, next).first->second;
    // A rank without answers gets a group of its own.
    if (answers[rank].empty()) groups[rank] = -1 - static_cast<int>(rank);
  }
  const std::vector<Mismatch> dissents = vote(answers, groups, past);
  remember(past, answers, dissents);
  for (std::size_t rank = 0; rank < ranks; ++rank) known(rank) = past[rank];
  return dissents;
}

}  // namespace egt
