// The one check that must read all block scales: NaN bytes and sign bits, which a load refuses or
// warns of. Separate from Checkpoint::open, which reads nothing large; costs one pass over the
// scale tensors (a tenth of the weights) at memory speed.
#pragma once

#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "checkpoint/directory.h"

namespace sextant {

// C1 nan-block-scale (error), C2 negative-block-scale (warning); also non-finite channel and block
// scales of FP8 (C3). Same order and text whatever the number of threads. Linears of which `skip`
// is true, where it is given, are known to have none and are not read.
std::vector<Finding> scan_scales(const Checkpoint& checkpoint, ThreadPool& pool,
                                 const std::function<bool(const LinearRecord&)>& skip = {});

}  // namespace sextant
