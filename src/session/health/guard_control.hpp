#pragma once

#include <array>
#include <limits>
#include <optional>

/// The three controllers of the limiter. Each is a pure function of its input, without clock, thread or
/// sensor. One thread at a time.
namespace egt {

/// Thermal margins of a device.
struct Heat {
  double excess_c = 0;  ///< degrees above the limit; negative: below it
  double headroom_c = std::numeric_limits<double>::infinity();  ///< distance to the slowdown
};

/// PI controller that keeps a device slightly below its temperature limit by its duty cycle. It engages at
/// the limit, and disengages once the device stays cool at full load. Source: Astrom and Haegglund, "Advanced
/// PID Control", 2006 (anti-windup by back-calculation, first-order plant with a gain of 40 to 100 degrees
/// and a time constant of 3 to 200 s).
class HeatControl {
 public:
  /// Called about once a second, with the `seconds` since the previous sample. Without a temperature it is
  /// not called, and the load stays unchanged.
  void look(const Heat& heat, double seconds);
  double duty() const { return duty_; }
  /// Returns whether the controller is engaged.
  bool holds() const { return holds_; }

 private:
  /// Upper bound near the slowdown temperature, independent of the controller.
  double highest_duty(const Heat& heat);
  void take_over(const Heat& heat);
  void control(double seconds, double highest);
  void let_go_if_calm(double seconds);

  bool holds_ = false;
  double duty_ = 1;
  double integral_ = 1;
  double excess_c_ = 0;                               ///< rises at once, falls slowly
  double calm_seconds_ = 0;                           ///< time cool at full load
  std::array<std::optional<double>, 2> headrooms_c_;  ///< of the two previous samples, newest first
};

/// Reduces the load if the power stays above the device's limit. It is a fallback for drivers that do not
/// enforce the limit.
class PowerControl {
 public:
  static constexpr double tolerance = 0.05;     ///< share of the limit, for sensor errors
  static constexpr double window_seconds = 10;  ///< max time above the limit

  /// Returns whether every sample of a whole window was above the limit.
  bool look(double power_w, double limit_w, double seconds);
  double duty() const { return duty_; }

 private:
  void raise(double power_w, double limit_w);

  double duty_ = 1;
  double above_seconds_ = 0;
  double below_seconds_ = 0;
};

/// Shrinks the share of memory for the fill step by step while too much is in use. Each step has time to show
/// an effect. Released memory is not filled again.
class PressureControl {
 public:
  enum class Move {
    none,
    lowered,  ///< the share was reduced
    gave_up,  ///< it does not help, since other processes use the memory
  };

  explicit PressureControl(double limit) : limit_(limit) {}
  /// `used`: share of the memory in use.
  Move look(double used, double seconds);
  double share() const { return share_; }

 private:
  const double limit_;
  double share_ = 1;
  double settled_seconds_ = 0;  ///< time above the limit since the last step
  std::optional<double> used_at_step_;
  int futile_steps_ = 0;
  bool gave_up_ = false;
};

}  // namespace egt
