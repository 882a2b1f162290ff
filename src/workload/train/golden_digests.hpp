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

/// Known answers (`--golden FILE`): the digests that a stack gave for fixed work, so that a fault that is
/// there from the first step, the same every time, is found even on one device.
class Golden {
 public:
  using Digests = std::map<std::string, Digest>;  ///< by question: the tensor's name

  /// The reverse of `text`. invalid_argument, in one line: what is wrong with the file, and where.
  static Result<Golden> parse(const std::string& text, const std::string& path_for_messages);
  /// JSON, the same for the same content, whatever the order in which it was added.
  std::string text() const;

  /// The digests known for this stack (device, driver, libraries: Environment::device_model), work (layers,
  /// batch, seed, .. in words) and precision; null: not known. Valid until the next `add`.
  const Digests* find(const std::string& device_model, const std::string& work,
                      const std::string& precision) const;
  /// Adds questions to those known for the three; one known already gets the new digest.
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

  /// `known` outlives the check; null: there is no file. invalid_argument: the file has this work, but not
  /// all of its digests, so that some would never be compared.
  Status prepare(const Golden* known, const std::string& device_model, const std::string& work,
                 const std::vector<std::string>& precisions, const std::string& path_for_messages);
  /// How the answers differ, `count` being 0 if they do not; nothing: the file does not have this precision.
  std::optional<Dissent> compare(const Answers& own, const std::string& precision);

  const std::set<std::string>& compared() const { return compared_; }  ///< precisions
  const std::set<std::string>& unknown() const { return unknown_; }    ///< precisions not in the file

 private:
  std::vector<std::string> questions_;
  std::map<std::string, const Golden::Digests*> known_;  ///< by precision
  std::set<std::string> compared_, unknown_;
};

/// Nothing: no such file yet, so it is to be written, which its folder allows. unavailable: it cannot be read
/// or made; invalid_argument: damaged. Never blocks on a pipe.
Result<std::optional<Golden>> read_golden(const std::string& path);

/// Readers see the old file or the whole new one; no temporary file is left. no_space; unavailable: it cannot
/// be written there.
Status write_golden(const std::string& path, const Golden& golden);

}  // namespace egt
