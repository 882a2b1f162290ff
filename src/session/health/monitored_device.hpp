#pragma once

#include <optional>
#include <string>
#include <utility>

#include "egt/core/record.hpp"

namespace egt {

/// Whose device the guard and the error counters judge: for faults and findings.
struct MonitoredDevice {
  int rank = 0;
  std::string hostname;
  std::string device_uuid;
  std::string detector = "NVML";  ///< who counts its errors

  Finding finding(std::string kind, std::string where, std::string text, std::optional<double> expected = {},
                  std::optional<double> actual = {}) const {
    return {.kind = std::move(kind),
            .rank = rank,
            .hostname = hostname,
            .device_uuid = device_uuid,
            .where = std::move(where),
            .text = std::move(text),
            .expected = expected,
            .actual = actual};
  }
};

}  // namespace egt
