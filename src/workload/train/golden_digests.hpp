#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "egt/core/digest.hpp"
#include "egt/core/status.hpp"

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

/// Nothing: no such file yet, so it is to be written, which its folder allows. unavailable: it cannot be read
/// or made; invalid_argument: damaged. Never blocks on a pipe.
Result<std::optional<Golden>> read_golden(const std::string& path);

/// Readers see the old file or the whole new one; no temporary file is left. no_space; unavailable: it cannot
/// be written there.
Status write_golden(const std::string& path, const Golden& golden);

}  // namespace egt
