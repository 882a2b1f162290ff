#pragma once

#include <array>
#include <limits>
#include <optional>

/// The three controllers of the guard. Each is a pure function of what it was shown so far: no clock, no
/// thread, no sensor. For one thread at a time.
namespace egt {

/// How near a device is to what heat may do to it.
struct Heat {
  double excess_c = 0;                                          ///< above the limit; negative: below it
  double headroom_c = std::numeric_limits<double>::infinity();  ///< below the temperature of its slowdown
};

/// Holds a device a little below its limit by its duty: a proportional-integral controller that takes over at
/// the limit, and lets go when the device stays cool at full duty. (Astrom and Haegglund, "Advanced PID
/// Control", 2006: anti-windup by back-calculation, from a first-order plant's gain of 40 to 100 degrees and
/// a time constant of 3 to 200 s.)
class HeatControl {
 public:
  /// About once a second; `seconds` since the look before. Not called where no temperature is known: the duty
  /// then stays as it is.
  void look(const Heat& heat, double seconds);
  double duty() const { return duty_; }
  /// Has it taken over?
  bool holds() const { return holds_; }

 private:
  /// What the nearness of the slowdown leaves of the duty, whatever the controller wants.
  double highest_duty(const Heat& heat);
  void take_over(const Heat& heat);
  void control(double seconds, double highest);
  void let_go_if_calm(double seconds);

  bool holds_ = false;
  double duty_ = 1;
  double integral_ = 1;
  double excess_c_ = 0;                               ///< rises at once, falls slowly
  double calm_seconds_ = 0;                           ///< cool at full duty
  std::array<std::optional<double>, 2> headrooms_c_;  ///< of the two looks before, newest first
};

/// Lowers the duty where the power stays above what the device may draw. The driver keeps to its limit by
/// itself: this is for one that does not.
class PowerControl {
 public:
  static constexpr double tolerance = 0.05;     ///< of the limit: sensors are that wrong
  static constexpr double window_seconds = 10;  ///< above the limit for so long: too long

  /// Has it just been above the limit, in every look, for a whole window?
  bool look(double power_w, double limit_w, double seconds);
  double duty() const { return duty_; }

 private:
  void raise(double power_w, double limit_w);

  double duty_ = 1;
  double above_seconds_ = 0;
  double below_seconds_ = 0;
};

/// Lowers the share of memory that the fill may hold where too much is in use, step by step, each with time
/// to take effect. What was given back stays given back.
class PressureControl {
 public:
  enum class Move {
    none,
    lowered,  ///< the share
    gave_up,  ///< it does not help: the memory is used by others
  };

  explicit PressureControl(double limit) : limit_(limit) {}
  /// `used`: share of the memory in use.
  Move look(double used, double seconds);
  double share() const { return share_; }

 private:
  const double limit_;
  double share_ = 1;
  double settled_seconds_ = 0;  ///< above the limit since the last step
  std::optional<double> used_at_step_;
  int futile_steps_ = 0;
  bool gave_up_ = false;
};

}  // namespace egt
