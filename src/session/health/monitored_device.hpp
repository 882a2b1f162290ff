#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "egt/core/record.hpp"
#include "egt/core/status.hpp"

namespace egt {

/// The device judged by limiter, error counters and session, as faults and findings identify it.
struct MonitoredDevice {
  int rank = 0;
  std::string hostname;
  std::string device_uuid;
  std::string detector = "NVML";  ///< source of the error counters
  int process = 0;                ///< pid of this process, as in the kernel log; 0: unknown
  std::string program = {};  ///< name of this process, as in /proc/PID/comm (15 characters); empty: unknown

  Fault fault(std::string kind, std::string where, std::string expected, std::string actual,
              std::int64_t step, std::string phase) const {
    Fault fault;
    fault.kind = std::move(kind);
    fault.detector = detector;
    fault.rank = rank;
    fault.hostname = hostname;
    fault.device_uuid = device_uuid;
    fault.step = step;
    fault.phase = std::move(phase);
    fault.where = std::move(where);
    fault.expected = std::move(expected);
    fault.actual = std::move(actual);
    return fault;
  }
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

/// Requires an `error` with the code device_error.
inline Fault make_device_fault(const MonitoredDevice& device, const Status& error, std::int64_t step,
                               std::string phase) {
  Fault fault =
      device.fault("device-error", error.what(), "0", std::to_string(error.native()), step, std::move(phase));
  fault.detector = "CUDA";
  fault.incident = "device error of rank " + std::to_string(device.rank);
  return fault;
}

}  // namespace egt
