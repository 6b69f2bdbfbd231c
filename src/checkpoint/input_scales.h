// Input scales measured on text (docs/calibration.md): what `calibrate` writes, and whoever needs
// activation scales that the checkpoint has not, or better ones, reads. Owns the file's format and
// what a sound one is; how numbers are measured and chosen is forge/calibrate.h's.
//
// One convention: multipliers g = amax / 2688, positive normal float32 (nvfp4.md, Notation).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sextant {

// What came by at a linear's input. Percentiles are of |x|, never below the exact ones and at most
// 1/32 above them.
struct MeasuredInput {
  int64_t n_rows = 0;
  double amax = 0;
  double rms = 0;
  double p99 = 0;
  double p99_9 = 0;
  double p99_99 = 0;
};

// The checkpoint's own: NVFP4 amax = 2688 * g, FP8 amax = 448 * g.
struct StoredInputScale {
  float g = 0.0F;
  double amax = 0;
};

// Where a multiplier is from, the best first.
enum class ScaleSource : uint8_t {
  kMeasured,
  kStored,   // the checkpoint's, which is larger, or nothing was measured
  kPeerMax,  // an expert never reached: the largest of the layer's other experts
  kNone,     // there is none
};
std::string_view scale_source_name(ScaleSource source);  // "measured", "stored", ...

struct InputScaleEntry {
  std::optional<float> g;  // what to use; none for kNone
  ScaleSource source = ScaleSource::kNone;
  std::optional<MeasuredInput> measured;  // none where no row came by
  std::optional<StoredInputScale> stored;
};

struct UnreachedExpert {
  int64_t layer = 0;
  int64_t expert = 0;
  ScaleSource source = ScaleSource::kNone;  // the weakest of its linears': kNone, kPeerMax, kStored
};

struct CalibrationText {
  std::string source;  // "builtin", "text" or "ids"
  std::string sha256;  // of the text, or of the file with the ids
  int64_t n_tokens = 0;
  int64_t n_sequences = 0;
};

struct InputScales {
  std::string version;     // of the program that measured
  std::string model;       // a name, for people
  std::string model_hash;  // fingerprint.h
  std::string isa;
  std::vector<std::string> policies;
  CalibrationText text;
  double headroom = 1;
  std::map<std::string, InputScaleEntry, std::less<>> modules;
  std::map<int64_t, std::vector<int64_t>> expert_tokens;  // by layer: tokens that chose each expert
  std::vector<UnreachedExpert> unreached;
};

// 2^-126 to the largest float32: what every quantizer can take the reciprocal of.
bool is_usable_multiplier(double g);

std::string input_scales_text(const InputScales& scales);  // the file, with its last line end
Status write_input_scales(const std::filesystem::path& path, const InputScales& scales);
// kInput with the first thing that is wrong: another format or version, an entry that lacks
// something, a number that cannot be.
Result<InputScales> read_input_scales(const std::filesystem::path& path);
// kInput where they were measured on a model with another hash, or lack one of the modules.
Status check_input_scales(const InputScales& scales, const std::string& name,
                          const std::string& model_hash, std::span<const std::string> modules);

}  // namespace sextant
