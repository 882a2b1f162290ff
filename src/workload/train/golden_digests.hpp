#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "egt/core/digest.hpp"
#include "egt/core/status.hpp"
#include "workload/common/digest_vote.hpp"

namespace egt {

/// Known answers (`--golden FILE`): digests that a stack computed for fixed work. They detect a fault that is
/// constant from the first step, even on a single device.
class Golden {
 public:
  using Digests = std::map<std::string, Digest>;  ///< by question: the tensor's name

  /// The inverse of `text`. invalid_argument: a one-line message with the error in the file and its position.
  static Result<Golden> parse(const std::string& text, const std::string& path_for_messages);
  /// JSON; equal content gives equal text, in whatever order it was added.
  std::string text() const;

  /// Known digests for this stack (device, driver, libraries: Environment::device_model), work (layers,
  /// batch, seed etc. as text) and precision; null: unknown. Valid until the next `add`.
  const Digests* find(const std::string& device_model, const std::string& work,
                      const std::string& precision) const;
  /// Adds answers for these three; an existing answer gets the new digest.
  void add(const std::string& device_model, const std::string& work, const std::string& precision,
           const Digests& digests);
  bool empty() const { return known_.empty(); }

  friend bool operator==(const Golden&, const Golden&) = default;

 private:
  std::map<std::tuple<std::string, std::string, std::string>, Digests> known_;  ///< model, work, precision
};

/// Compares one rank's answers with a golden file. Main thread only.
class GoldenCheck {
 public:
  /// `questions`: in the order of the answers.
  explicit GoldenCheck(std::vector<std::string> questions) : questions_(std::move(questions)) {}

  /// `known` must outlive the check; null: no file. invalid_argument: the file has this work, but lacks some
  /// digests, which would never be compared.
  Status prepare(const Golden* known, const std::string& device_model, const std::string& work,
                 const std::vector<std::string>& precisions, const std::string& path_for_messages);
  /// Differences of the answers; `count` is 0 if there is none. Nothing: the file lacks this precision.
  std::optional<Mismatch> compare(const Answers& own, const std::string& precision);

  const std::set<std::string>& compared() const { return compared_; }  ///< precisions
  const std::set<std::string>& unknown() const { return unknown_; }    ///< precisions not in the file

 private:
  std::vector<std::string> questions_;
  std::map<std::string, const Golden::Digests*> known_;  ///< by precision
  std::set<std::string> compared_, unknown_;
};

/// Nothing: no file yet; it will be written, and its folder permits that. unavailable: not readable or not
/// creatable; invalid_argument: damaged. Never blocks on a pipe.
Result<std::optional<Golden>> read_golden(const std::string& path);

/// Atomic: readers see the old or the complete new file. Leaves no temporary file. no_space; unavailable: not
/// writable.
Status write_golden(const std::string& path, const Golden& golden);

}  // namespace egt
