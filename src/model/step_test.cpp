// A step allocates nothing: every way to get memory is counted while steps run. operator new is
// replaced here, aligned_alloc, malloc and mmap are wrapped by the linker (CMakeLists.txt).
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include <gtest/gtest.h>

#include "model/model.h"
#include "model/testing/golden.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> n_allocations{0};
void count() {
  if (counting.load(std::memory_order_relaxed)) n_allocations.fetch_add(1);
}
}  // namespace

extern "C" {
void* __real_aligned_alloc(size_t alignment, size_t size);
void* __real_malloc(size_t size);
void* __real_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset);
void* __wrap_aligned_alloc(size_t alignment, size_t size) {
  count();
  return __real_aligned_alloc(alignment, size);
}
void* __wrap_malloc(size_t size) {
  count();
  return __real_malloc(size);
}
void* __wrap_mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) {
  count();
  return __real_mmap(at, size, protection, flags, file, offset);
}
}

// GCC does not see that these come in pairs.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(size_t size) {
  count();
  void* p = __real_malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, std::align_val_t alignment) {
  count();
  const auto a = static_cast<size_t>(alignment);
  void* p = __real_aligned_alloc(a, (size + a - 1) / a * a);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
void* operator new[](size_t size, std::align_val_t alignment) {
  return operator new(size, alignment);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }

namespace sextant {
namespace {

using testing::dump_ids;
using testing::golden_dir;

TEST(Step, the_counter_counts) {
  counting = true;
  n_allocations = 0;
  std::vector<int> small(3);
  ASSERT_NE(small.data(), nullptr);
  const AlignedBuffer large(int64_t{64} << 20);
  counting = false;
  EXPECT_GE(n_allocations.load(), 2);
}

// The first step of each width may make the kernels' scratch; from then on nothing, whichever
// thread takes which task.
TEST(Step, allocates_nothing) {
  for (const char* directory : {"qwen3", "qwen2-window", "llama-rope-linear", "llama-rope-dynamic",
                                "modelopt-llama3-separate", "modelopt-llama-mixed",
                                "fp8-block-llama", "qwen3-moe-mixed", "modelopt-qwen3-moe"})
    for (const Ops* ops : available_ops())
      for (const char* policy : {"a16", "f32", "a4:dynamic", "a4:token", "a8", "a8:fp8"}) {
        ThreadPool pool(2);
        ModelOptions options;
        options.isa = ops->name;
        options.policies = {policy};
        const auto loaded = Model::load(golden_dir(directory), options, pool);
        ASSERT_TRUE(loaded.has_value()) << loaded.error().text;
        const Model& model = **loaded;
        const auto ids = dump_ids(directory);
        KvPool pages(model.kv_layout(), 8);
        KvSequence a(pages);
        KvSequence b(pages);
        ASSERT_TRUE(a.reserve(17) && b.reserve(9));
        const StepBuffersPtr buffers = model.make_buffers(32, 32);
        std::vector<float> logits(static_cast<size_t>(32 * model.config().n_vocab));
        const auto step = [&](int64_t n_a, int64_t pos_a, int64_t n_b, int64_t pos_b) {
          const StepSeq seqs[] = {
              {&a, std::span(ids[0]).subspan(static_cast<size_t>(pos_a), static_cast<size_t>(n_a)),
               pos_a, n_a},
              {&b, std::span(ids[1]).subspan(static_cast<size_t>(pos_b), static_cast<size_t>(n_b)),
               pos_b, 1}};
          model.forward(seqs, *buffers, Mat<float>(logits.data(), n_a + 1, model.config().n_vocab),
                        nullptr, pool);
        };
        step(16, 0, 8, 0);
        step(1, 16, 1, 8);
        step(1, 16, 1, 8);
        n_allocations = 0;
        counting = true;
        step(16, 0, 8, 0);
        step(1, 16, 1, 8);
        ASSERT_TRUE(b.reserve(16));  // pages come from the pool
        b.truncate(9);
        counting = false;
        EXPECT_EQ(n_allocations.load(), 0) << directory << " " << ops->name << " " << policy;
      }
}

}  // namespace
}  // namespace sextant
