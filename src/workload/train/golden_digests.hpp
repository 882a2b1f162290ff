#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "egt/core/status.hpp"
#include "model/digest_exchange.hpp"

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
  /// The answers to `questions`, in their order; nothing: the file does not have this work. invalid_argument:
  /// it lacks some of them, which would never be compared.
  Result<std::optional<Answers>> answers(const std::string& device_model, const std::string& work,
                                         const std::string& precision,
                                         const std::vector<std::string>& questions,
                                         const std::string& path_for_messages) const;
  /// Adds answers for these three; an existing answer gets the new digest.
  void add(const std::string& device_model, const std::string& work, const std::string& precision,
           const Digests& digests);
  bool empty() const { return known_.empty(); }

  friend bool operator==(const Golden&, const Golden&) = default;

 private:
  std::map<std::tuple<std::string, std::string, std::string>, Digests> known_;  ///< model, work, precision
};

/// Nothing: no file yet; it will be written, and its folder permits that. unavailable: not readable or not
/// creatable; invalid_argument: damaged. Never blocks on a pipe.
Result<std::optional<Golden>> read_golden(const std::string& path);

/// Atomic: readers see the old or the complete new file. Leaves no temporary file. no_space; unavailable: not
/// writable.
Status write_golden(const std::string& path, const Golden& golden);

}  // namespace egt
