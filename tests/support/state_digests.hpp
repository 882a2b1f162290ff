#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "model/digest_exchange.hpp"
#include "model/mlp_trainer.hpp"

namespace egt::test {

/// Digests of the trainer's state from all ranks, [rank][tensor]; empty if that fails.
inline std::vector<Answers> state_digests(Device& device, Communicator& communicator, MlpTrainer& trainer) {
  constexpr double timeout_s = 60;
  ProgressBoard board;
  DigestExchange exchange(device, communicator, trainer.communication_stream(), &board.line("test"));
  const std::size_t count = trainer.state_tensors().size();
  Status status = exchange.prepare(count);
  if (status.ok()) status = trainer.enqueue_state_digests(exchange.own());
  if (status.ok()) status = exchange.enqueue(count);
  EXPECT_TRUE(status.ok()) << status.what();
  if (!status.ok()) return {};
  auto answers = exchange.collect(timeout_s);
  EXPECT_TRUE(answers.ok()) << answers.status().what();
  return answers.ok() ? answers.value() : std::vector<Answers>();
}

}  // namespace egt::test
