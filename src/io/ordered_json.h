// Json whole. io/json.h only names it, since few need more and the library's header is heavy.
#pragma once

#include <nlohmann/json.hpp>

#include "io/json.h"
