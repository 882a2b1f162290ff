#pragma once

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// Where records end: a journal, the console. Used by one thread at a time.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual Status write(const Record& record) = 0;
  /// Called often; makes what was written last (a disk) or seen (a terminal), at a rate the sink chooses.
  virtual Status flush() = 0;
};

}  // namespace egt
