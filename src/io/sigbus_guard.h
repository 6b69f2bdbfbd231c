// Private to io/: the registry of mappings that the SIGBUS handler looks through. The handler runs
// in whatever thread touched the page, so the registry is a list of records that are never freed,
// only reused, with atomic bounds: looking through it takes no lock and no memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace sextant {

void* sigbus_register(const void* begin, int64_t n_bytes, std::string_view path);
void sigbus_unregister(void* slot);

}  // namespace sextant
