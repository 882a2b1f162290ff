#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace egt {

/// Reason why the program failed. Wrong results of the hardware are a `Fault`, never a Status.
enum class StatusCode {
  ok,
  invalid_argument,  ///< wrong usage: an option, a config file (exit 2)
  unavailable,       ///< missing in the environment: device, library, permission (exit 3)
  unsupported,       ///< this device or build cannot do it; `what` has the reason (exit 3)
  out_of_memory,     ///< device or host memory (exit 3)
  no_space,          ///< the file system is full (exit 3)
  io_error,          ///< a system call on a file failed
  timeout,           ///< a deadline passed (exit 4)
  stopped,           ///< a stop was requested while waiting; not an error
  aborted,           ///< a device or a peer is lost (exit 4)
  device_error,  ///< an error that only the device's hardware can cause in this program: the session turns it
                 ///< into a `Fault` (exit 1), and every later device call fails too
  internal,      ///< a violated invariant of the program
};

const char* to_string(StatusCode code);
/// Reverse of to_string; std::nullopt for any other text.
std::optional<StatusCode> parse_status_code(std::string_view text);

/// Success, or the reason of a failure. Cheap to pass if ok (a null pointer). Relayed up, printed at the top.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string what, long native = 0,
         std::source_location where = std::source_location::current());

  bool ok() const { return detail_ == nullptr; }
  StatusCode code() const { return detail_ ? detail_->code : StatusCode::ok; }
  /// Native code of the library that failed (cudaError_t, errno, ..), or 0.
  long native() const { return detail_ ? detail_->native : 0; }
  /// The failure in one line, for people.
  const std::string& what() const;
  /// Source line that created it.
  std::string where() const;

 private:
  struct Detail {
    StatusCode code;
    long native;
    std::string what;
    std::source_location where;
  };
  std::shared_ptr<const Detail> detail_;
};

/// A value, or the Status that explains its absence.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : value_(std::move(status)) { assert(!std::get<Status>(value_).ok()); }

  bool ok() const { return std::holds_alternative<T>(value_); }
  Status status() const { return ok() ? Status() : std::get<Status>(value_); }
  T& value() { return std::get<T>(value_); }
  const T& value() const { return std::get<T>(value_); }

 private:
  std::variant<Status, T> value_;
};

/// Support of a feature, or the reason why it is missing, in one line.
struct Support {
  std::string why_not;  ///< empty: supported
  bool yes() const { return why_not.empty(); }
};

}  // namespace egt

#define EGT_JOIN_(a, b) a##b
#define EGT_JOIN(a, b) EGT_JOIN_(a, b)

/// Returns the Status of `expression` from the calling function if it is not ok.
#define EGT_TRY(expression)                                                           \
  do {                                                                                \
    if (::egt::Status egt_status = (expression); !egt_status.ok()) return egt_status; \
  } while (false)

/// `EGT_TRY_ASSIGN(auto x, f())`: x gets the value of the Result, or its Status is returned.
#define EGT_TRY_ASSIGN(target, expression) \
  EGT_TRY_ASSIGN_(EGT_JOIN(egt_result_, __LINE__), target, expression)
#define EGT_TRY_ASSIGN_(name, target, expression) \
  auto name = (expression);                       \
  if (!name.ok()) return name.status();           \
  target = std::move(name.value())
