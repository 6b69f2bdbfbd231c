// Two models' tensors at the same taps of one stage. One probe records what the first model has
// there for the rows of a step, another holds the second's against it, row by row; sums run over
// all steps. Rows that only one of them has (an expert that only one router chose) are left out.
//
// "input" is not listed: it is the tap before it. Sums are float64, over rows in their order: the
// result does not depend on the number of threads.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "base/view.h"
#include "model/probe.h"

namespace sextant {

// One element, in both.
struct TapElement {
  int64_t position = 0;  // of the token, in the ids
  int64_t row = 0;       // of the tapped tensor
  int64_t column = 0;
  float a = 0.0F;
  float b = 0.0F;
};

// Sums over some elements. Where one of the two is not finite the pair is counted, not summed.
struct DifferenceOfRows {
  double a2 = 0;
  double b2 = 0;
  double ab = 0;
  double d2 = 0;
  int64_t n_bad_a = 0;  // NaN or infinite
  int64_t n_bad_b = 0;
  int64_t n_different = 0;  // not the same number; two that are NaN are the same

  void add(const DifferenceOfRows& later);
  bool is_empty() const;       // something came by, but nothing finite: what follows is NaN
  double cosine() const;       // 1 for two zero tensors, 0 where one is
  double rms_ratio() const;    // rms(b) / rms(a); infinite where only a is zero
  double relative_l2() const;  // |b - a| / |a|; likewise
};

struct ComparedTap {
  std::string name;
  int64_t layer = -1;
  std::optional<int64_t> expert;
  std::string module;
  int64_t n_rows = 0;  // that both have
  int64_t n_columns = 0;
  DifferenceOfRows difference;
  std::optional<TapElement> first_different;
  std::optional<TapElement> first_bad;  // of either
  double limit = 0;                     // of relative_l2 (explained_error.h)
  // rms of B's weights to A's, of a linear whose formats differ.
  std::optional<double> weight_ratio;
  bool stands_out = false;
};

// One row against another; columns of the first that differs and the first that is not finite, or
// -1.
struct RowDifference {
  DifferenceOfRows sums;
  int64_t first_different = -1;
  int64_t first_bad = -1;
};
RowDifference compare_row(std::span<const float> a, std::span<const float> b);
// Rows in parallel, summed in their order.
DifferenceOfRows compare_rows(Mat<const float> a, Mat<const float> b, ThreadPool& pool);

class StageComparison {
 public:
  // pool: must be idle while a tap is visited.
  explicit StageComparison(ThreadPool& pool) : recorder_(*this), comparer_(*this), pool_(pool) {}
  StageComparison(const StageComparison&) = delete;
  StageComparison& operator=(const StageComparison&) = delete;

  // A step whose first row is the token at `position` of the ids: run the first model with
  // recorder(), then the second on the same rows with comparer(). The first's stage must live until
  // the end.
  void begin_step(int64_t position);
  Probe& recorder() { return recorder_; }
  Probe& comparer() { return comparer_; }

  std::vector<ComparedTap> take();  // in execution order
  // Of the experts that the first's router chose, the share that the second's did too.
  std::optional<double> same_experts() const;

 private:
  // A tap of a stage by its name and its expert, -1 for none: "mlp_act" has no module of its own.
  using Key = std::pair<std::string_view, int64_t>;
  struct Recorded {
    std::vector<float> values;
    std::vector<int32_t> rows;
    int64_t n_rows = 0;
    int64_t n_columns = 0;
  };
  class KeyedProbe : public Probe {
   public:
    explicit KeyedProbe(StageComparison& owner) : owner_(owner) {}
    void visit(const Tap& tap, Mat<const float> values) final;

   protected:
    virtual void visit_keyed(const Key& key, const Tap& tap, Mat<const float> values) = 0;
    StageComparison& owner_;

   private:
    int64_t expert_ = -1;
  };
  class Recorder final : public KeyedProbe {
   public:
    using KeyedProbe::KeyedProbe;
    void visit_ids(const Tap& tap, Mat<const int32_t> ids) override;

   protected:
    void visit_keyed(const Key& key, const Tap& tap, Mat<const float> values) override;
  };
  class Comparer final : public KeyedProbe {
   public:
    using KeyedProbe::KeyedProbe;
    void visit_ids(const Tap& tap, Mat<const int32_t> ids) override;

   protected:
    void visit_keyed(const Key& key, const Tap& tap, Mat<const float> values) override;
  };

  ComparedTap& listed(const Key& key, const Tap& tap);
  void compare(const Recorded& recorded, const Tap& tap, Mat<const float> values, ComparedTap& to);

  Recorder recorder_;
  Comparer comparer_;
  ThreadPool& pool_;
  int64_t position_ = 0;
  std::map<Key, Recorded> recorded_;  // of this step; buffers are kept
  std::vector<int32_t> recorded_ids_;
  int64_t n_ids_ = 0;
  int64_t n_same_ids_ = 0;
  std::list<ComparedTap> taps_;
  std::map<Key, std::list<ComparedTap>::iterator> index_;
  std::list<ComparedTap>::iterator next_ = taps_.end();  // where a new tap goes
};

}  // namespace sextant
