// Small checkpoints for tests: tensors in memory, written as a plain safetensors file (by code that
// shares nothing with the reader) into a directory of their own that goes away with the fixture.
// The shared fixtures F-LIN, F-LIN-CT and F-MOE of the case catalog are built here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/record.h"

namespace sextant::testing {

struct FixtureTensor {
  std::string name;
  std::string dtype;  // as in a header
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

class CheckpointFixture {
 public:
  CheckpointFixture();
  ~CheckpointFixture();
  CheckpointFixture(const CheckpointFixture&) = delete;
  CheckpointFixture& operator=(const CheckpointFixture&) = delete;

  const std::filesystem::path& dir() const { return dir_; }

  // A tensor of one byte value, of given bytes, or of numbers; a name that is there is replaced.
  void fill(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
            uint8_t byte);
  void add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
           std::vector<uint8_t> bytes);
  void add_f32(const std::string& name, std::vector<int64_t> shape,
               const std::vector<float>& values);
  void add_bf16(const std::string& name, std::vector<int64_t> shape,
                const std::vector<float>& values);
  void add_bf16(const std::string& name, std::vector<int64_t> shape, float value);  // all equal
  void remove(std::string_view name);
  void rename(std::string_view name, const std::string& to);
  FixtureTensor& tensor(std::string_view name);

  // A linear in ModelOpt's NVFP4 with F-LIN's values: codes 0x21, scales 1.0, g 0.5, input 0.25.
  void add_linear(const std::string& module, int64_t n, int64_t k, bool input_scale = true);

  void write_file(const std::string& name, std::string_view content);  // below dir()
  std::filesystem::path write(const std::string& file_name = "model.safetensors");
  // Only the named tensors, as one shard.
  std::filesystem::path write_shard(const std::string& file_name,
                                    const std::vector<std::string>& names);

 private:
  std::filesystem::path dir_;
  std::vector<FixtureTensor> tensors_;
};

void add_f_lin(CheckpointFixture& fixture);     // model.layers.0.mlp.down_proj, 4 x 32
void add_f_lin_ct(CheckpointFixture& fixture);  // the same bytes, compressed-tensors names
void add_f_moe(CheckpointFixture& fixture, bool input_scales = true);  // 8 experts of 32 x 32

// Bytes of a safetensors file, by the format's definition.
std::string safetensors_bytes(const std::vector<const FixtureTensor*>& tensors);

// Every weight of a record in float32 by nvfp4.md 1.6, one at a time: d = f32(S * g) or f32(S / G),
// then f32(q * d).
std::vector<float> dequantized(const LinearRecord& record);

}  // namespace sextant::testing
