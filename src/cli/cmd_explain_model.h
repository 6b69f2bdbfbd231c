// The half of `sextant explain` that is about a model.
#pragma once

#include <string>

#include "cli/common.h"

namespace sextant {

// The resolved plan of a model. Status: 0, 2 where the model would not load.
Result<int> explain_model(Context& context, const std::string& typed);

}  // namespace sextant
