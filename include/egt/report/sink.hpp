#pragma once

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// A destination of records, such as the journal or the console. Used by one thread at a time.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Status write(const Record& record) = 0;
  /// Called often. The sink chooses how often it syncs its output to disk or redraws the terminal.
  virtual Status flush() = 0;
};

}  // namespace egt
