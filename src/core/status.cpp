#include "egt/core/status.hpp"

namespace egt {

const char* to_string(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid argument";
    case StatusCode::unavailable:
      return "unavailable";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::out_of_memory:
      return "out of memory";
    case StatusCode::no_space:
      return "no space";
    case StatusCode::io_error:
      return "input/output error";
    case StatusCode::timeout:
      return "timeout";
    case StatusCode::stopped:
      return "stopped";
    case StatusCode::aborted:
      return "aborted";
    case StatusCode::device_error:
      return "device error";
    case StatusCode::internal:
      return "internal error";
  }
  return "unknown";
}

std::optional<StatusCode> parse_status_code(std::string_view text) {
  for (int code = 0; code <= static_cast<int>(StatusCode::internal); ++code)
    if (text == to_string(static_cast<StatusCode>(code))) return static_cast<StatusCode>(code);
  return std::nullopt;
}

Status::Status(StatusCode code, std::string what, long native, std::source_location where)
    : detail_(std::make_shared<const Detail>(Detail{code, native, std::move(what), where})) {}

const std::string& Status::what() const {
  static const std::string none;
  return detail_ ? detail_->what : none;
}

std::string Status::where() const {
  if (!detail_) return {};
  std::string file = detail_->where.file_name();
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(detail_->where.line());
}

}  // namespace egt
