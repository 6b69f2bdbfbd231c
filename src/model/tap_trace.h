// A probe that keeps the statistics of every tap (nvfp4.md 6.2) and finds the first bad one. A tap
// is known by name, layer and module; taps of one step are listed as they came, one that only a
// later step visits (an expert that nobody had chosen before) behind the one it followed there.
//
// Of an "input" whose linear has a static activation scale it counts what that scale would do:
// clip, flush to zero, leave coarse, on the values as they are tapped, float32. The forward pass
// itself does not quantize activations.
//
// The sequence must be run from position 0, in steps in their order.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/directory.h"
#include "model/config.h"
#include "model/first_bad_tap.h"
#include "model/probe.h"
#include "model/tap_statistics.h"
#include "quant/scale_use.h"

namespace sextant {

// An input under its linear's static scale.
struct InputUse {
  float scale = 0.0F;            // g
  float calibrated_amax = 0.0F;  // 2688 * g (NVFP4) or 448 * g (FP8)
  bool is_nvfp4 = true;
  ScaleUse use;
};

struct TracedTap {
  std::string name;
  int64_t layer = -1;
  std::optional<int64_t> expert;
  std::string module;
  TapStatistics statistics;
  std::optional<InputUse> input;  // of "input" taps whose linear has a usable activation scale

  bool is_input() const { return name == "input"; }
  bool is_bad() const { return statistics.n_bad() > 0; }
  // amax of this input / calibrated amax; nothing where there is no scale.
  std::optional<double> ratio() const;
};

class TapTrace : public Probe {
 public:
  // Both must outlive it. pool: measures rows in parallel; must be idle while a tap is visited.
  TapTrace(const Checkpoint& checkpoint, const ModelConfig& config, ThreadPool& pool)
      : checkpoint_(checkpoint), config_(config), pool_(pool) {}

  void begin_step(int64_t pos_begin, int64_t n_rows);
  void visit(const Tap& tap, Mat<const float> values) override;

  const std::list<TracedTap>& taps() const { return taps_; }  // in execution order
  const std::optional<FirstBadTap::Found>& first_bad() const { return first_bad_.found(); }
  // Of the first bad row, where it can be said.
  std::optional<int64_t> bad_position() const { return bad_position_; }
  // Outputs of linears that are zero throughout while their inputs are not: finite, and dead.
  std::vector<const TracedTap*> dead() const;
  double seconds() const { return seconds_; }  // spent in here

 private:
  using Key = std::tuple<std::string_view, int64_t, std::string_view>;
  TracedTap& traced(const Tap& tap);
  void measure(const TracedTap& traced, Mat<const float> values);

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  ThreadPool& pool_;
  std::list<TracedTap> taps_;
  std::map<Key, std::list<TracedTap>::iterator> index_;  // keys view the model's names
  std::list<TracedTap>::iterator next_ = taps_.end();    // where a new tap goes
  FirstBadTap first_bad_;
  std::optional<int64_t> bad_position_;
  int64_t pos_begin_ = 0;
  int64_t n_step_rows_ = 0;
  double seconds_ = 0;
  // Of the last visit. Linears that share an input are visited one after the other with the same
  // tensor, which is then measured once.
  std::vector<RowStatistics> rows_;
  std::vector<ScaleUse> uses_;
  const float* last_input_ = nullptr;
  int64_t last_input_rows_ = 0;
  std::optional<std::pair<float, bool>> last_scale_;
};

}  // namespace sextant
